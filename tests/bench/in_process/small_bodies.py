"""What a body of 100 values costs by step, from its bytes to the commit: alone, and many together.

CPU µs a body of this thread by step, in one process, on LMDB, all kernels and all series known beforehand; the commit's
wall time stands apart, since it waits for the disk. Bodies hold ten series at ten times (deep) or a hundred series at
one time (wide). ``new`` adds ten series to each body while the process knows very many. Enter by ``run``; Django must
be set up, since admission imports its models.
"""

import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import cramjam
import numpy as np

from ingest.accept.admission import Admission
from ingest.accept.announcer import StampAnnouncer
from ingest.accept.identity import message_id_of
from ingest.protocols.influx.joined import BodyToParse, parse_many
from ingest.protocols.json import collectd, samples
from ingest.protocols.otlp import reader as otlp
from ingest.protocols.prometheus import remote_write, text
from ingest.writer import Writer
from spm.accounts.quotas import Quota
from spm.clock import SystemClock
from spm.envelope_batch import Envelopes
from spm.limits import HOUR_MS, QUOTA_SERIES_MAX
from spm.store.backends import open_backend
from spm.store.keys import PlacementTable
from spm.wire import Parsed, SeriesTable, canonical
from tests.bench import bodies as encoded
from tests.bench import report
from tests.support.fleet import FIELDS, Fleet

APP, STEPS = 1, 10
TOGETHER = (1, 32, 130)
AGENTS, ROUNDS = 1_000, 3  # the last round counts
NEW_EACH, NEW_BODIES, NEW_ROUNDS = 10, 500, 5  # all rounds but the first count, with the growth of tables
KNOWN_AT_ONCE = 20_000  # series of one message
T = TypeVar("T")
Parse = Callable[[Sequence[bytes], int], list[Parsed]]


def _each(parse: Callable[[bytes, int], Parsed]) -> Parse:
    return lambda some, now_ms: [parse(body, now_ms) for body in some]


def _lines(some: Sequence[bytes], now_ms: int) -> list[Parsed]:
    results = parse_many([BodyToParse(body, now_ms, "ms") for body in some])
    return [result for result in results if isinstance(result, Parsed)]


def _remote_write(fleet: Fleet, steps: range, hosts: range) -> bytes:
    return bytes(cramjam.snappy.decompress_raw(encoded.remote_write(fleet, steps, hosts)))


def _wide(fleet: Fleet, steps: range, hosts: range) -> bytes:
    """Line protocol of a hundred series: each step is a processor of its own, all at one time."""
    first, rows = int(fleet.ts[steps.start, 0]), []
    for host in hosts:
        for step in steps:
            values = fleet.values[step, host].astype(int).tolist()
            fields = ",".join(f"{name}={value}i" for name, value in zip(FIELDS, values, strict=True))
            rows.append(f"cpu,hostname=host_{host},region=eu-{host % 4},cpu=cpu{step % STEPS} {fields} {first}\n")
    return "".join(rows).encode()


FORMS: dict[str, tuple[encoded.Encode, Parse]] = {
    "line protocol, deep": (encoded.lines, _lines),
    "line protocol, wide": (_wide, _lines),
    "Prometheus text": (encoded.text, _each(lambda body, now_ms: text.parse(body, now_ms=now_ms))),
    "remote write": (_remote_write, _each(lambda body, now_ms: remote_write.parse(body, now_ms=now_ms))),
    "OTLP": (encoded.otlp, _each(lambda body, now_ms: otlp.parse(body, now_ms=now_ms))),
    "JSON": (encoded.columns, _each(lambda body, now_ms: samples.parse(body, now_ms=now_ms))),
    "collectd": (encoded.collectd, _each(lambda body, now_ms: collectd.parse(body, now_ms=now_ms))),
}


@dataclass(slots=True)
class Steps:
    """CPU seconds by step, and the wall seconds of the commits."""

    cpu: dict[str, float] = field(default_factory=dict)
    commit_wall: float = 0.0

    def timed(self, step: str, act: Callable[[], T]) -> T:
        """Return what ``act`` returns, and add its time to a step."""
        began = time.thread_time()
        result = act()
        self.cpu[step] = self.cpu.get(step, 0.0) + time.thread_time() - began
        return result

    def show(self, name: str, bodies: int) -> None:
        """Print µs a body."""
        each = {step: 1e6 * seconds / bodies for step, seconds in self.cpu.items()}
        report.line(name, **each, all=sum(each.values()), commit_wall=1e6 * self.commit_wall / bodies)


class Pipeline:
    """The product's steps over a store in a folder."""

    def __init__(self, folder: str) -> None:
        self.clock, store = SystemClock(), open_backend(f"lmdb://{folder}/store")
        quota = Quota(series=QUOTA_SERIES_MAX, samples_per_s=None)
        self.admission = Admission(store, self.clock, lambda app: quota)
        self.announcer, self.writer = StampAnnouncer(store, self.clock, every_s=None), Writer(store, PlacementTable())

    def accept(self, bodies: Sequence[bytes], parse: Parse, steps: Steps) -> None:
        """Take bodies from their bytes to the commit, all together."""
        now_ms = self.clock.now_ms()
        parsed = steps.timed("parse", lambda: parse(bodies, now_ms))
        assert len(parsed) == len(bodies), "BUG: a body of the benchmark was rejected"
        ids = steps.timed(
            "identity",
            lambda: [
                message_id_of(one, given=None, token_id=1, path="/write", body=body)
                for one, body in zip(parsed, bodies, strict=True)
            ],
        )
        admitted = steps.timed("admit", lambda: self.admission.admit_many([(APP, one, "ms") for one in parsed]))
        good = [one for one in admitted if isinstance(one, Parsed)]
        assert sum(len(one.ts) for one in good) == sum(len(one.ts) for one in parsed), "BUG: samples were rejected"
        stamp = self.announcer.stamp_message
        stamped = steps.timed(
            "stamp",
            lambda: [
                stamp(app=APP, source=f"agent-{number}", parsed=one, message_id=message_id)
                for number, (one, message_id) in enumerate(zip(good, ids, strict=True))
            ],
        )
        columns = steps.timed("columns", lambda: Envelopes.of(stamped))
        batch = steps.timed("prepare", lambda: self.writer.prepare(columns))
        began = time.perf_counter()
        steps.timed("commit", lambda: self.writer.commit(batch))
        steps.commit_wall += time.perf_counter() - began
        steps.timed("confirm", lambda: deque(map(self.announcer.confirm, stamped), 0))

    def know(self, series: int) -> None:
        """Admit and register so many series."""
        for first in range(0, series, KNOWN_AT_ONCE):
            numbers = range(first, min(first + KNOWN_AT_ONCE, series))
            table = SeriesTable.from_canonical([canonical("known", {"number": str(n)}) for n in numbers])
            rows = np.arange(len(table), dtype=np.int32)
            parsed = Parsed(table, rows, np.full(len(rows), self.clock.now_ms()), rows.astype(np.float64))
            admitted = self.admission.admit(APP, parsed)
            self.writer.write(
                [self.announcer.stamp_message(app=APP, source="known", parsed=admitted, message_id=bytes(16))]
            )


def run(protocol: str, agents: int, known: int) -> None:
    """Print the costs of each protocol, or of the one that was asked for, then of new series."""
    for name, (encode, parse) in FORMS.items():
        if protocol in ("", name.partition(",")[0]):
            for together in TOGETHER:
                with tempfile.TemporaryDirectory(prefix="spm-bench-") as folder:
                    _known_bodies(name, Pipeline(folder), encode, parse, min(agents, 150 * together), together)
    if protocol in ("", "line protocol"):
        with tempfile.TemporaryDirectory(prefix="spm-bench-") as folder:
            _new_series(Pipeline(folder), known)


def _known_bodies(
    name: str, pipeline: Pipeline, encode: encoded.Encode, parse: Parse, agents: int, together: int
) -> None:
    start_ms = pipeline.clock.now_ms() - HOUR_MS // 2
    fleet = Fleet.make(hosts=agents, steps=STEPS * ROUNDS, start_ms=start_ms)
    all_bodies = list(encoded.bodies(fleet, encode, steps=STEPS, hosts=1))
    counted, steps = 0, Steps()
    for number in range(ROUNDS):
        counted, steps = 0, Steps()
        for batch in _groups(all_bodies[number * agents :][:agents], together):
            pipeline.accept(batch, parse, steps)
            counted += len(batch)
    steps.show(f"{name}, {together} together", counted)


def _new_series(pipeline: Pipeline, known: int) -> None:
    """Bodies of 100 values of which ten are of new series, alone and together."""
    pipeline.know(known)
    for together in TOGETHER:
        for what, new in (("known", 0), ("new", NEW_EACH)):
            ms, count, steps = pipeline.clock.now_ms(), 0, Steps()
            names = [f"{together}-{number}" for number in range(NEW_BODIES)]
            for number in range(NEW_ROUNDS):
                some = [_line_body(name, f"{name}-{number}" if new else "0", ms) for name in names]
                for batch in _groups(some, together):
                    pipeline.accept(batch, _lines, steps if number else Steps())
                count += len(some) // together * together if number else 0
            steps.show(f"{known} series known, {new} {what} in a body, {together} together", count)


def _line_body(name: str, last: str, ms: int) -> bytes:
    """Ten lines of ten values of a host, the last line of a process of its own."""
    tags = [*(f"part={number}" for number in range(9)), f"process={last}"]
    fields = ",".join(f"{field_name}={number}i" for number, field_name in enumerate(FIELDS))
    return "".join(f"cpu,hostname=host_{name},{tag} {fields} {ms}\n" for tag in tags).encode()


def _groups(some: Sequence[bytes], together: int) -> Iterator[Sequence[bytes]]:
    """The whole groups of so many bodies."""
    for at in range(0, len(some) // together * together, together):
        yield some[at : at + together]


def main() -> None:
    """Run with the arguments PROTOCOL AGENTS KNOWN."""
    run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
