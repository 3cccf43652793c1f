"""A small world for tests of runs: a store, a writer, a reader, a driver, and a dict that knows the right answers.

``World.send`` accepts and stores samples as ingest does and tells the ``Model``, which says what any reader must
answer, whatever runs, crashes and roll backs have done to the rows. Series are the numbers 0, 1, 2, …, of the metrics
``m0``, ``m1`` and ``m2`` in turn.
"""

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ingest.accept.stamper import Stamper
from ingest.writer import Writer
from rollups.compute.source import PackPlace, read_pack
from rollups.crash_points import Hook, ignore_point
from rollups.delete import expire
from rollups.delete.erase_retracted import erase_retracted
from rollups.delete.expire import RetentionPeriods
from rollups.move import redistribute
from rollups.run.driver import Driver, RunReport
from rollups.run.local import LocalExecutor
from spm.clock import FakeClock
from spm.limits import DAY_HOURS, HOUR_MS
from spm.query.reader import AppStorage
from spm.query.request.batches import HourBatch, Matcher
from spm.query.rolled import percentiles
from spm.query.view.decoded_rows import PageCache
from spm.store import epochs, keys, manifest
from spm.store.backends.base import Backend
from spm.store.backends.memory import MemoryBackend
from spm.store.keys import PlacementTable
from spm.store.ledger import commit_records
from spm.store.ledger.commit_records import Commit
from spm.store.manifest import Manifest, Month, first_day_of, month_of
from spm.store.rollup.aggregates import COLUMNS
from spm.store.versions import retractions
from spm.store.versions.retractions import Retraction
from spm.wire import Envelope, Parsed, SeriesTable, canonical, parse_canonical
from tests.model.truth import EVER, Account, Answer, Model, Row, Stamp, Steps, Taken, Version

APP = 7
DAY = 19_600
START = DAY * DAY_HOURS * HOUR_MS  # the first instant of a day
NEXT_DAY = START + 26 * HOUR_MS  # when all of that day is closed
DAY_MS = DAY_HOURS * HOUR_MS
FIRST = DAY * DAY_HOURS  # its first hour
ALL = (Matcher("__name__", "=~", "m."),)
SPREAD = PlacementTable.single(spread=3)  # metrics lie in two shards

Sample = tuple[int, int, float]  # series number, ms after START, value


class Crash(Exception):
    """A process was killed here."""


def crash_at(point: str, times: int = 1) -> Hook:
    """A hook that kills at the n-th visit of a point."""
    left = times

    def hook(reached: str) -> None:
        nonlocal left
        ignore_point(reached)
        if reached == point:
            left -= 1
            if left == 0:
                raise Crash(point)

    return hook


def meanwhile(point: str, act: Callable[[], object]) -> Hook:
    """A hook that does something else once, at the first visit of a point."""
    left = [point]

    def hook(reached: str) -> None:
        ignore_point(reached)
        if left == [reached]:
            left.clear()
            act()

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
    placement: PlacementTable = SPREAD

    def __post_init__(self) -> None:
        cell = epochs.encode(self.placement)
        self.store.check_and_put("config", epochs.row_key(APP), epochs.COLUMN, None, cell)
        self.acceptor = Stamper(1, self.clock)
        self.writer = Writer(self.store, self.placement)
        self.model = Model()
        self.readers = AppStorage(self.store, APP, placement=self.placement, clock=self.clock, cache=PageCache())

    # --- writing

    def send(self, *samples: Sample, source: str = "host") -> Envelope:
        """Accept and store one message."""
        self.clock.advance(1)
        envelope = self.acceptor.stamp_message(app=APP, source=source, parsed=parsed(samples), message_id=bytes(16))
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

    def retain(self, keep: RetentionPeriods, *, days_later: int, at: Hook = ignore_point) -> None:
        """Let what is over go, some days after the first one ended."""
        now = START + (1 + days_later) * DAY_MS
        try:
            expire.expire(self.driver(at), LocalExecutor(self.store, at), APP, keep, now_ms=now)
        finally:
            self.seals()

    def seals(self) -> None:
        """Tell the model which hours and days are final or gone."""
        for day in (DAY, DAY + 1):
            value, month = self.manifest(day), self.month(day)
            for hour, state in value.seals.items():
                if state >= manifest.SEALED:
                    self.model.seal(hour)
            if manifest.EXPIRED in value.seals.values():
                self.model.expire(day)
                if not any(day in pack.days for pack in month.days.values()):
                    self.model.drop(day)

    def month(self, day: int) -> Month:
        """The days in force of a day's month."""
        [row] = self.store.get("manifest", [keys.manifest_month(APP, month_of(day))], [b"v"])
        return manifest.decode_month(row[b"v"] if row else None)

    def driver(self, at: Hook = ignore_point) -> Driver:
        """A driver of runs over this store."""
        return Driver(self.store, self.clock, at=at)

    def roll(
        self,
        *,
        minor: bool = False,
        now_ms: int = NEXT_DAY,
        at: Hook = ignore_point,
        upgrade: bool = False,
        sweep: bool = False,
    ) -> RunReport:
        """One run in this process."""
        executor = LocalExecutor(self.store, at)
        return self.driver(at).roll(executor, [APP], minor=minor, now_ms=now_ms, upgrade=upgrade, sweep=sweep)

    def migrate(self, at: Hook = ignore_point) -> RunReport:
        """Move what lies where the newest epoch does not put it."""
        return redistribute.migrate(self.driver(at), LocalExecutor(self.store, at), APP, now_ms=NEXT_DAY)

    # --- retracting

    def retract(
        self,
        *,
        write_from: int = 0,
        write_to: int | None = None,
        data_from: int = 0,
        data_to: int = EVER,
        source: str = "",
        metric: int | None = None,
        series: int | None = None,
    ) -> int:
        """Take out what is stamped within a range (by default: until now) and in all these conditions; its number."""
        self.clock.advance(1)
        now = self.clock.now_ms()
        matchers = [Matcher("__name__", "=", f"m{metric}")] if metric is not None else []
        matchers += [Matcher("n", "=", str(series))] if series is not None else []
        draft = Retraction(
            0,
            now,
            0,
            write_from,
            now if write_to is None else write_to,
            data_from,
            data_to,
            source,
            tuple(matchers),
            "wrong",
            "ann",
        )
        result = retractions.add(self.store, APP, draft)
        chosen = (
            frozenset(n for n in range(100) if metric in (None, n % 3) and series in (None, n)) if matchers else None
        )
        self.model.retract(
            result.number,
            Taken(
                now, result.write_from_ms, result.write_to_ms, result.data_from_ms, result.data_to_ms, source, chosen
            ),
        )
        return result.number

    def undo(self, number: int) -> None:
        """Put it back."""
        self.clock.advance(1)
        ended = retractions.end(self.store, APP, number, self.clock.now_ms())
        self.model.undo(number, ended.end_ms)

    def erase_retracted(self, number: int, at: Hook = ignore_point) -> None:
        """Delete for good what a retraction hides: once it is marked erased, no read at any time shows any of it."""
        self.model.purge(number)
        erase_retracted(self.store, APP, number, now_ms=self.clock.now_ms(), at=at)

    # --- reading

    def answer(self, storage: AppStorage | None = None) -> Answer:
        """Every sample there is, by a process that has just started, or by the given one."""
        batch = (storage or self.fresh()).select(ALL, START - 1, START + 48 * HOUR_MS)
        result: Answer = {}
        for row, labels in enumerate(batch.labels):
            for i in range(batch.offsets[row], batch.offsets[row + 1]):
                key = int(labels["n"]), int(batch.ts[i])
                assert key not in result, "a sample counted twice"
                result[key] = float(batch.values[i])
        return result

    def hours(self, storage: AppStorage | None = None) -> Steps:
        """Hourly aggregates by (series number, hour), as a reader gets them."""
        return _by_series((storage or self.fresh()).select_hours(ALL, FIRST, FIRST + 2 * DAY_HOURS))

    def days(self, storage: AppStorage | None = None) -> Steps:
        """Daily aggregates by (series number, day), as a reader gets them."""
        return {(n, hour // DAY_HOURS): row for (n, hour), row in _by_series(self._select_days(storage)).items()}

    def _select_days(self, storage: AppStorage | None) -> HourBatch:
        borders = np.arange(FIRST, FIRST + 3 * DAY_HOURS, DAY_HOURS)
        return (storage or self.fresh()).select_cells(ALL, borders, [name for name, _ in COLUMNS])

    def quantiles(self, q: float, storage: AppStorage | None = None) -> list[float]:
        """The quantile of all values of each of the two days, whatever the series."""
        starts = np.array([START, START + DAY_MS])
        result = percentiles.group_percentiles(storage or self.fresh(), ALL, starts, starts + DAY_MS, qs=[q], by=[])
        return result.values[0][0].tolist() if len(result.labels) else [math.nan, math.nan]

    def resolutions(self) -> set[str]:
        """Where daily answers come from: days, hours or raw samples."""
        return {resolution for resolution, _ in self._select_days(None).provenance.ranges}

    def fresh(self) -> AppStorage:
        """A reader with empty caches."""
        return AppStorage(self.store, APP, placement=self.placement, clock=self.clock, cache=PageCache())

    def manifest(self, day: int = DAY) -> Manifest:
        """What is in force."""
        [row] = self.store.get("manifest", [keys.manifest(APP, day)], [b"v"])
        return manifest.decode(row[b"v"] if row else None)

    def pending_rows(self) -> int:
        """How many pending records there are."""
        ranges = [keys.app_range(shard, APP) for shard in self.spread().all_shards(APP)]
        return sum(1 for r in ranges for _ in self.store.scan("pending", *r))

    def spread(self) -> PlacementTable:
        """Where the app's data may lie now."""
        return epochs.read(self.store, APP)

    def accounts(self) -> dict[Stamp, dict[int, Account]]:
        """Stamp -> hour -> how many samples, and whether they were in time; of all that is there of any batch.

        A batch is there when all its rows are in `ledger` or `pending`; what one batch has stored another cannot
        have brought too late. One that was written to a closed epoch, and again elsewhere, is abandoned row by row.
        """
        result: dict[int, dict[tuple[int, int], Placed]] = {}  # batch -> its rows that are there
        abandoned: set[int] = set()
        for key, cells in self.store.scan("ledger", *keys.ledger_range(APP)):
            commit, outcome, batch = _account(cells[b"v"])
            if outcome == commit_records.ABANDONED:  # by an epoch that closed meanwhile: no reader finds it
                abandoned.add(batch)
                continue
            assert outcome in (commit_records.STORED, commit_records.EXPIRED_HOUR)
            number = int.from_bytes(key[-4:], "big")
            result.setdefault(batch, {})[number & 0xFF, number >> 8] = commit, outcome == commit_records.STORED
        assert not abandoned & result.keys(), "a batch of which a part was abandoned and a part was not"
        for item in commit_records.scan(self.store, APP, list(range(256))):
            if item.key.batch in abandoned:
                continue
            row = item.key.shard, item.hour
            decided = None if self.model.is_sealed(item.hour) else True
            result.setdefault(item.key.batch, {}).setdefault(row, (_commit(item.cell), decided))
        return _accounts(result, self.model.in_time)

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


_account = functools.lru_cache(4096)(commit_records.decode_ledger_row)  # rows are write-once
_commit = functools.lru_cache(4096)(commit_records.decode)


Placed = tuple[Commit, bool | None]  # whether it was in time; None: nobody has said yet


def _accounts(
    placed: Mapping[int, Mapping[tuple[int, int], Placed]], undecided: Callable[[Stamp, int], bool]
) -> dict[Stamp, dict[int, Account]]:
    accounts: dict[Stamp, dict[int, Account]] = {}
    for rows in placed.values():
        counts: dict[tuple[Stamp, int], list[tuple[int, bool]]] = {}
        for (_, hour), (commit, in_time) in rows.items():
            assert set(commit.rows.names()) <= rows.keys(), "a batch that is not wholly there"
            m = commit.messages
            stamps = zip(m.ms.tolist(), m.process.tolist(), m.sequence.tolist(), strict=True)
            for stamp, count in dict(zip(stamps, commit.samples.tolist(), strict=True)).items():  # a batch may hold
                known = undecided(stamp, hour) if in_time is None else in_time
                counts.setdefault((stamp, hour), []).append((count, known))  # a message twice: it is one acceptance
        for (stamp, hour), parts in counts.items():
            result = Account(sum(count for count, _ in parts), all(in_time for _, in_time in parts))
            was = accounts.setdefault(stamp, {}).setdefault(hour, result)
            assert was.samples == result.samples, "two batches of one message differ"
            accounts[stamp][hour] = Account(result.samples, was.in_time or result.in_time)
    return accounts


def parsed(samples: Sequence[Sample]) -> Parsed:
    """What a protocol makes of these samples."""
    numbers = sorted({series for series, _, _ in samples})
    forms = [form_of(n) for n in numbers]
    index = np.array([numbers.index(series) for series, _, _ in samples], np.int32)
    ts = np.array([START + ms for _, ms, _ in samples], np.int64)
    return Parsed(SeriesTable.from_canonical(forms), index, ts, np.array([v for _, _, v in samples], np.float64))


def _by_series(batch: HourBatch) -> Steps:
    result: Steps = {}
    for row, labels in enumerate(batch.labels):
        for column, hour in enumerate(batch.hours.tolist()):
            if batch.count[row, column]:
                key = int(labels["n"]), hour
                assert key not in result, "a step counted twice"
                result[key] = {name: getattr(batch, name)[row, column].item() for name, _ in COLUMNS}
    return result


def whole_day(world: World) -> dict[int, Row]:
    """Daily aggregates by series number, counted from the list of versions."""
    return {series: row for (series, day), row in world.model.days().items() if day == DAY}


def days_in_force(world: World) -> dict[int, dict[str, float]]:
    """Daily aggregates of the day by series number, read from the rows that the month's manifest names."""
    number = {int(t): n for n in range(20) for t in SeriesTable.from_canonical([form_of(n)]).ids}
    [row] = world.store.get("manifest", [keys.manifest_month(APP, month_of(DAY))], [b"v"])
    result = {}
    for shard, days in manifest.decode_month(row[b"v"] if row else None).days.items():
        if DAY not in days.days:
            continue
        place = PackPlace("days", APP, shard, month_of(DAY), first_day_of(month_of(DAY)) * DAY_HOURS)
        for _, steps in read_pack(world.store, place, days.generation):
            rows = steps.at(DAY)
            for i, series in enumerate(rows.series.tolist()):
                result[number[series]] = {name: getattr(rows, name)[i].item() for name, _ in COLUMNS}
    return result
