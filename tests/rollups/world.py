"""A small world for tests of runs: a store, a writer, a reader, a driver, and a dict that knows the right answers.

``World.send`` accepts and stores samples as ingest does and tells the ``Model``, which says what any reader must
answer, whatever runs, crashes and roll backs have done to the rows. Series are the numbers 0, 1, 2, …, of the metrics
``m0``, ``m1`` and ``m2`` in turn.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from ingest.accept import Acceptor
from ingest.write import Writer
from rollups.local import LocalExecutor
from rollups.plan import first_day_of, month_of
from rollups.points import Hook, nowhere
from rollups.run import Driver, RunReport
from rollups.source import Place, read_pack
from spm.clock import FakeClock
from spm.limits import DAY_SLOTS, HOUR_MS
from spm.query.cache import PageCache
from spm.query.select import HourBatch, Matcher
from spm.query.storage import AppStorage
from spm.store import keys, manifest
from spm.store.aggregates import COLUMNS
from spm.store.backends.base import Backend
from spm.store.backends.memory import MemoryBackend
from spm.store.keys import Distribution
from spm.store.manifest import Manifest
from spm.wire import Envelope, Parsed, SeriesTable, canonical, parse_canonical
from tests.rollups.model import Answer, Model, Row, Steps, Version

APP = 7
DAY = 19_600
START = DAY * DAY_SLOTS * HOUR_MS  # the first instant of a day
NEXT_DAY = START + 26 * HOUR_MS  # when all of that day is closed
SPREAD = Distribution.single(spread=2)  # metrics lie in two buckets

Sample = tuple[int, int, float]  # series number, ms after START, value


class Crash(Exception):
    """A process was killed here."""


def crash_at(point: str, times: int = 1) -> Hook:
    """A hook that kills at the n-th visit of a point."""
    left = times

    def hook(reached: str) -> None:
        nonlocal left
        nowhere(reached)
        if reached == point:
            left -= 1
            if left == 0:
                raise Crash(point)

    return hook


def form_of(series: int) -> bytes:
    """The canonical form of a series number."""
    return canonical(metric_of(series), {"n": str(series)})


def metric_of(series: int) -> str:
    """The metric of a series number."""
    return f"m{series % 3}"


@dataclass
class World:
    """One app's store with all that acts on it."""

    store: Backend = field(default_factory=MemoryBackend)
    clock: FakeClock = field(default_factory=lambda: FakeClock(START + HOUR_MS))
    distribution: Distribution = SPREAD

    def __post_init__(self) -> None:
        self.acceptor = Acceptor(1, self.clock)
        self.writer = Writer(self.store, self.distribution)
        self.model = Model()
        self.readers = AppStorage(self.store, APP, distribution=self.distribution, clock=self.clock, cache=PageCache())

    # --- writing

    def send(self, *samples: Sample, source: str = "host") -> Envelope:
        """Accept and store one message."""
        self.clock.advance(1)
        envelope = self.acceptor.accept(app=APP, source=source, parsed=parsed(samples), message_id=bytes(16))
        self.store_again(envelope)
        return envelope

    def store_again(self, *envelopes: Envelope) -> None:
        """Write messages in a batch, as a worker does after a redelivery."""
        self.writer.write(envelopes)
        self.model.accept(version for envelope in envelopes for version in versions_of(envelope))

    @property
    def truth(self) -> Answer:
        """Every sample that any reader must answer, whatever runs, crashes and roll backs have done to the rows."""
        return self.model.raw()

    # --- runs

    def driver(self, at: Hook = nowhere) -> Driver:
        """A driver of runs over this store."""
        return Driver(self.store, self.clock, self.distribution.all, at=at)

    def roll(self, *, minor: bool = False, now_ms: int = NEXT_DAY, at: Hook = nowhere) -> RunReport:
        """One run in this process."""
        return self.driver(at).roll(LocalExecutor(self.store, at), [APP], minor=minor, now_ms=now_ms)

    # --- reading

    def answer(self, storage: AppStorage | None = None) -> Answer:
        """Every sample there is, by a process that has just started, or by the given one."""
        batch = (storage or self.fresh()).select([Matcher("__name__", "=~", "m.")], START - 1, START + 48 * HOUR_MS)
        found: Answer = {}
        for row, labels in enumerate(batch.labels):
            for i in range(batch.offsets[row], batch.offsets[row + 1]):
                key = int(labels["n"]), int(batch.ts[i])
                assert key not in found, "a sample counted twice"
                found[key] = float(batch.values[i])
        return found

    def hours(self) -> dict[tuple[int, int], dict[str, float]]:
        """Hourly aggregates by (series number, slot), as a reader gets them."""
        first = DAY * DAY_SLOTS
        batch = self.fresh().select_hours([Matcher("__name__", "=~", "m.")], first, first + 2 * DAY_SLOTS)
        return _by_series(batch)

    def fresh(self) -> AppStorage:
        """A reader with empty caches."""
        return AppStorage(self.store, APP, distribution=self.distribution, clock=self.clock, cache=PageCache())

    def manifest(self, day: int = DAY) -> Manifest:
        """What is in force."""
        [row] = self.store.get("manifest", [keys.manifest(APP, day)], [b"v"])
        return manifest.decode(row[b"v"] if row else None)

    def pending_rows(self) -> int:
        """How many pending records there are."""
        ranges = [keys.app_range(bucket, APP) for bucket in self.distribution.all(APP)]
        return sum(1 for r in ranges for _ in self.store.scan("pending", *r))

    def recount(self) -> Steps:
        """Hourly aggregates, counted from the list of versions."""
        return self.model.hours()


def versions_of(envelope: Envelope) -> Iterator[Version]:
    """What a message says, sample by sample."""
    numbers = [int(parse_canonical(envelope.series.canonical(i))[1]["n"]) for i in range(len(envelope.series))]
    stamp = envelope.stamp.ms, envelope.stamp.process, envelope.stamp.sequence
    rows = zip(envelope.series_index.tolist(), envelope.ts.tolist(), envelope.values.tolist(), strict=True)
    for place, (index, ts, value) in enumerate(rows):
        yield Version(numbers[index], ts, value, stamp, place, envelope.source)


def parsed(samples: Sequence[Sample]) -> Parsed:
    """What a protocol makes of these samples."""
    numbers = sorted({series for series, _, _ in samples})
    forms = [form_of(n) for n in numbers]
    index = np.array([numbers.index(series) for series, _, _ in samples], np.int32)
    ts = np.array([START + ms for _, ms, _ in samples], np.int64)
    return Parsed(SeriesTable.from_canonical(forms), index, ts, np.array([v for _, _, v in samples], np.float64))


def _by_series(batch: HourBatch) -> dict[tuple[int, int], dict[str, float]]:
    found = {}
    for row, labels in enumerate(batch.labels):
        for column, slot in enumerate(batch.slots.tolist()):
            if batch.count[row, column]:
                values = {name: getattr(batch, name)[row, column].item() for name, _ in COLUMNS}
                found[int(labels["n"]), slot] = values
    return found


def whole_day(world: World) -> dict[int, Row]:
    """Daily aggregates by series number, counted from the list of versions."""
    return {series: row for (series, day), row in world.model.days().items() if day == DAY}


def days_in_force(world: World) -> dict[int, dict[str, float]]:
    """Daily aggregates of the day by series number, read from the rows that the month's manifest names."""
    number = {int(t): n for n in range(20) for t in SeriesTable.from_canonical([form_of(n)]).ids}
    [row] = world.store.get("manifest", [keys.manifest_month(APP, month_of(DAY))], [b"v"])
    found = {}
    for bucket, days in manifest.decode_month(row[b"v"] if row else None).days.items():
        if DAY not in days.days:
            continue
        place = Place("days", APP, bucket, month_of(DAY), first_day_of(month_of(DAY)) * DAY_SLOTS)
        for _, steps in read_pack(world.store, place, days.generation):
            rows = steps.at(DAY)
            for i, series in enumerate(rows.series.tolist()):
                found[number[series]] = {name: getattr(rows, name)[i].item() for name, _ in COLUMNS}
    return found
