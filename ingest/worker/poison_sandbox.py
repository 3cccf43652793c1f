"""Tries a message that may end the process that handles it, in a process of its own: the poison sandbox.

A message that was under way each time its workers ended is either one among many that waited beside the poisonous one,
or the poisonous one. ``PoisonSandbox.try_delivery`` has a child process do with it what a worker would: read it, and
prepare its rows for a store in memory. If the child ends, or does not answer in time, the message has its cause of
death; the worker and all other messages go on. The child is used again for the next messages, since there are often
some hundred at a time.

A message is not to blame for a child that does not start, or that ended before it got the message; nor for a busy
machine: what counts is the child's own time on a processor, and ten times as much on the clock.

``python -m ingest.worker.poison_sandbox`` is the child. It reads lengths and messages of MessagePack on its input, and
writes one byte when it has started, and one for each message. An error that it survives is no verdict: the worker meets
the error, too, and can describe it.
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
from spm.store.keys import PlacementTable
from spm.wire import Envelope, Stamp

SURVIVED = b"+"
_SIZE = struct.Struct(">I")
_EXIT_WAIT_S = 5.0


class SandboxedMessage(msgspec.Struct, frozen=True, array_like=True):
    """What the child tries: a body as it was delivered."""

    body: bytes
    by_agent: bool
    content_type: str
    encoding: str


class PoisonSandbox:
    """A child process, started when it is first needed and again after each that ended."""

    def __init__(self, command: Sequence[str], wait_s: float = limits.SANDBOX_WAIT_S) -> None:
        self._command, self._wait_s = command, wait_s
        self._child: subprocess.Popen[bytes] | None = None

    def try_delivery(self, delivery: Delivery) -> str | None:
        """Return why this message must not be handled here; ``None`` if nothing speaks against it.

        Raises ``StoreUnavailable`` when it cannot be tried now; it is then delivered again.
        """
        by_agent = delivery.exchange == AGENTS or delivery.content_type == LINES_TYPE
        message = SandboxedMessage(delivery.body, by_agent, delivery.content_type, delivery.encoding)
        packed = msgspec.msgpack.encode(message)
        frame = _SIZE.pack(len(packed)) + packed
        try:
            survived = _survives(self._ready(), frame, self._wait_s)
        except BrokenPipeError:  # it ended before it had the whole message, perhaps by itself: another child decides
            self.close()
            survived = self._survives_again(frame)
        if survived:
            return None
        child, self._child = self._child, None
        assert child is not None, "BUG: no child tried it"
        return f"ended {delivery.tries} workers, and the process that tried it ({_exit_reason(child)})"

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            self._child = None

    def _survives_again(self, frame: bytes) -> bool:
        """Whether a second child survives the message; one that ends before it has all of it does not."""
        try:
            return _survives(self._ready(), frame, self._wait_s)
        except BrokenPipeError:
            return False

    def _ready(self) -> "subprocess.Popen[bytes]":
        """Return a child that has started, and lives."""
        if self._child is None or self._child.poll() is not None:
            try:
                self._child = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            except OSError as error:
                raise StoreUnavailable(f"no process to try a message in: {error}") from error
            if not _survives(self._child, b"", self._wait_s):
                why, self._child = _exit_reason(self._child), None
                raise StoreUnavailable(f"the process to try a message in does not begin ({why})")
        return self._child


def _survives(child: "subprocess.Popen[bytes]", frame: bytes, wait_s: float) -> bool:
    """Whether the child answers in time; ``BrokenPipeError`` if it ended before it had read the frame."""
    assert child.stdin is not None, "BUG: a child without its pipes"
    assert child.stdout is not None, "BUG: a child without its pipes"
    deadline = threading.Timer(wait_s, child.kill)
    deadline.start()
    try:
        child.stdin.write(frame)
        child.stdin.flush()
        return child.stdout.read(1) == SURVIVED
    finally:
        deadline.cancel()


def _exit_reason(child: subprocess.Popen[bytes]) -> str:
    """Return how the child ended; one that hangs is killed."""
    try:
        code = child.wait(_EXIT_WAIT_S)
    except subprocess.TimeoutExpired:
        child.kill()
        code = child.wait()
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def handle(message: SandboxedMessage) -> None:
    """Read the message and make its rows, as a worker does."""
    if message.by_agent:
        body = read_body(BytesIO(message.body), encoding=message.encoding, length=len(message.body))
        parsed = by_content.parse(body, message.content_type, 1)
        columns = (parsed.series, parsed.series_index, parsed.ts, parsed.values)
        envelope = Envelope(0, "", Stamp(1, 1, 0), bytes(16), *columns)
    else:
        envelope = Envelope.from_bytes(message.body)
    Writer(MemoryBackend(), PlacementTable()).write([envelope])


def main(source: BinaryIO, sink: BinaryIO) -> None:
    """Try messages in the child until its input ends."""
    resource.setrlimit(resource.RLIMIT_DATA, (limits.SANDBOX_BYTES_MAX, limits.SANDBOX_BYTES_MAX))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # the worker may handle it, the child must die of it
    _answer(sink)
    while len(size := source.read(_SIZE.size)) == _SIZE.size:
        packed = source.read(_SIZE.unpack(size)[0])
        signal.setitimer(signal.ITIMER_PROF, limits.SANDBOX_CPU_S)  # its signal ends a process that does not handle it
        try:
            handle(msgspec.msgpack.decode(packed, type=SandboxedMessage))
        except MemoryError:
            raise
        except Exception:  # the worker can describe it
            pass
        signal.setitimer(signal.ITIMER_PROF, 0)
        _answer(sink)


def _answer(sink: BinaryIO) -> None:
    sink.write(SURVIVED)
    sink.flush()


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer)
