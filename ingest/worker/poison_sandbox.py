"""Trying in a process of its own what may end the process that handles it.

A message that was under way each time its workers ended is either one among many that waited beside the culprit, or the
culprit. ``Trial.of`` has a child process do with it what a worker would: read it, and prepare its rows for a store in
memory. A child that ends, or does not come back in time, gives the message its cause of death; the worker and all other
messages go on. The child stays for the next ones, since there are often some hundred at a time.

No message is to blame for a child that does not begin, or that ended before it got the message; nor for a machine with
no time to spare: what counts is the child's own time on a processor, and on the clock ten times as much.

``python -m ingest.worker.poison_sandbox`` is the child: lengths and messages of MessagePack on its input, on its output
one byte when it has begun, and one for each. An error that it survives is no verdict: the worker meets it, and knows
how to say it.
"""

import resource
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from io import BytesIO
from typing import BinaryIO

import msgspec

from ingest.http.body import read_body
from ingest.protocols import by_content
from ingest.routing import AGENTS, LINES_TYPE
from ingest.transport.delivery import Delivery
from ingest.writer import Writer
from spm import limits
from spm.errors import StoreUnavailable
from spm.store.backends.memory import MemoryBackend
from spm.store.keys import Distribution
from spm.wire import Envelope, Stamp

SURVIVED = b"+"
_SIZE = struct.Struct(">I")
_LAST_S = 5.0


class Tried(msgspec.Struct, frozen=True, array_like=True):
    """What is tried: a body as it came."""

    body: bytes
    by_agent: bool
    content_type: str
    encoding: str


class Trial:
    """A child process, started when it is first needed and again after each that ended."""

    def __init__(self, command: Sequence[str], wait_s: float = limits.TRIAL_WAIT_S) -> None:
        self._command, self._wait_s = command, wait_s
        self._child: subprocess.Popen[bytes] | None = None

    def of(self, delivery: Delivery) -> str | None:
        """Why this message must not be handled here; ``None``: nothing speaks against it.

        ``StoreUnavailable``: it cannot be tried now, and comes again.
        """
        by_agent = delivery.exchange == AGENTS or delivery.content_type == LINES_TYPE
        packed = msgspec.msgpack.encode(Tried(delivery.body, by_agent, delivery.content_type, delivery.encoding))
        told = _SIZE.pack(len(packed)) + packed
        try:
            well = _answers(self._ready(), told, self._wait_s)
        except BrokenPipeError:  # it ended before it had the whole message, perhaps by itself: another one decides
            self.close()
            well = self._heard(told)
        if well:
            return None
        child, self._child = self._child, None
        assert child is not None, "BUG: nobody tried it"
        return f"ended {delivery.tries} workers, and the process that tried it ({_end(child)})"

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child = None

    def _heard(self, told: bytes) -> bool:
        """Whether all is well with a child that may end before it has all of a message."""
        try:
            return _answers(self._ready(), told, self._wait_s)
        except BrokenPipeError:
            return False

    def _ready(self) -> "subprocess.Popen[bytes]":
        """A child that has begun, and lives."""
        if self._child is None or self._child.poll() is not None:
            try:
                self._child = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            except OSError as error:
                raise StoreUnavailable(f"no process to try a message in: {error}") from error
            if not _answers(self._child, b"", self._wait_s):
                why, self._child = _end(self._child), None
                raise StoreUnavailable(f"the process to try a message in does not begin ({why})")
        return self._child


def _answers(child: "subprocess.Popen[bytes]", told: bytes, wait_s: float) -> bool:
    """Whether it says that all is well, in time; ``BrokenPipeError``: it ended before it was told all."""
    assert child.stdin is not None, "BUG: a child without its pipes"
    assert child.stdout is not None, "BUG: a child without its pipes"
    late = threading.Timer(wait_s, child.kill)
    late.start()
    try:
        child.stdin.write(told)
        child.stdin.flush()
        return child.stdout.read(1) == SURVIVED
    finally:
        late.cancel()


def _end(child: subprocess.Popen[bytes]) -> str:
    """How it ended, which it does by itself unless it hangs."""
    try:
        code = child.wait(_LAST_S)
    except subprocess.TimeoutExpired:
        child.kill()
        code = child.wait()
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def handle(tried: Tried) -> None:
    """Read it and make its rows, as a worker does."""
    if tried.by_agent:
        body = read_body(BytesIO(tried.body), encoding=tried.encoding, length=len(tried.body))
        parsed = by_content.parse(body, tried.content_type, 1)
        columns = (parsed.series, parsed.series_index, parsed.ts, parsed.values)
        envelope = Envelope(0, "", Stamp(1, 1, 0), bytes(16), *columns)
    else:
        envelope = Envelope.from_bytes(tried.body)
    Writer(MemoryBackend(), Distribution()).write([envelope])


def main(source: BinaryIO, sink: BinaryIO) -> None:
    """The child's life."""
    resource.setrlimit(resource.RLIMIT_DATA, (limits.TRIAL_BYTES_MAX, limits.TRIAL_BYTES_MAX))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # whatever the worker does with it
    _say(sink)
    while len(size := source.read(_SIZE.size)) == _SIZE.size:
        packed = source.read(_SIZE.unpack(size)[0])
        signal.setitimer(signal.ITIMER_PROF, limits.TRIAL_S)  # its signal ends a process that does not expect it
        try:
            handle(msgspec.msgpack.decode(packed, type=Tried))
        except MemoryError:
            raise
        except Exception:  # the worker will say it better
            pass
        signal.setitimer(signal.ITIMER_PROF, 0)
        _say(sink)


def _say(sink: BinaryIO) -> None:
    sink.write(SURVIVED)
    sink.flush()


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer)
