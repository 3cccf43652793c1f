"""Decides whether beat starts a run now, and which, from what waits for one.

``measure_backlog`` sums up what waits: the pending records of each app as ``PendingColumns``, and manifests with closed
hours that lack something. ``decide_start`` compares that with the thresholds: a minor run starts by the rows, samples
and age of what is pending (``ROLL_PENDING_*``). Nothing here reads a store, a clock or a database.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from rollups.decide.plan import DEFAULTS, Thresholds, is_closed
from spm.arrays import I64
from spm.limits import DAY_HOURS, HOUR_MS
from spm.store.manifest import OPEN, Manifest


@dataclass(frozen=True, slots=True)
class PendingColumns:
    """R pending records of one app and their C cells: what a decision needs of them, without their messages."""

    shard: I64  # [R]
    ingest_ms: I64  # [R]
    record: I64  # [C] place of the cell's record, ascending
    hour: I64  # [C]
    samples: I64  # [C]

    @classmethod
    def of(
        cls, records: Sequence[tuple[int, int]] = (), cells: Sequence[tuple[int, int, int]] = ()
    ) -> "PendingColumns":
        """Return the columns of these (shard, ingest ms) and (place of the record, hour, samples)."""
        shard, ingest_ms = np.array(records, np.int64).reshape(-1, 2).T.copy()
        record, hour, samples = np.array(cells, np.int64).reshape(-1, 3).T.copy()
        return cls(shard, ingest_ms, record, hour, samples)

    def plus(self, other: "PendingColumns") -> "PendingColumns":
        """Return these records, then the others."""
        return PendingColumns(
            np.concatenate([self.shard, other.shard]),
            np.concatenate([self.ingest_ms, other.ingest_ms]),
            np.concatenate([self.record, other.record + len(self.shard)]),
            np.concatenate([self.hour, other.hour]),
            np.concatenate([self.samples, other.samples]),
        )

    def days(self) -> list[int]:
        """Return the days of the cells, ascending."""
        return sorted(set((self.hour // DAY_HOURS).tolist()))

    def of_days(self, days: Collection[int]) -> "PendingColumns":
        """Return all records with the cells of these days alone."""
        mask = np.isin(self.hour // DAY_HOURS, np.array(sorted(days), np.int64))
        return PendingColumns(self.shard, self.ingest_ms, self.record[mask], self.hour[mask], self.samples[mask])


class RunStart(IntEnum):
    """Which run beat starts now."""

    NOTHING = 0
    MINOR = 1  # in this process
    SPARK = 2  # a process of its own


@dataclass(frozen=True, slots=True)
class Backlog:
    """How much work waits for a run, over all apps."""

    rows: int  # pending rows of the fullest (shard, app)
    samples: int
    oldest_ms: int | None  # when the oldest pending row was written
    overdue_ms: (
        int | None
    )  # since when a closed hour lacks its full merge or its aggregates: its oldest row, or its end


def measure_backlog(apps: Iterable[tuple[PendingColumns, Mapping[int, Manifest]]], now_ms: int) -> Backlog:
    """Measures the backlog of all apps, each given as its pending records and the manifests of its recent days."""
    fullest, samples, oldest, overdue = 0, 0, math.inf, math.inf
    for pending, manifests in apps:
        if len(pending.record):
            records = np.flatnonzero(np.bincount(pending.record))  # of any cell
            fullest = max(fullest, int(np.bincount(pending.shard[records]).max()))
            samples += int(pending.samples.sum())
            oldest = min(oldest, int(pending.ingest_ms[records].min()))
            overdue = min(overdue, _late_since(pending, now_ms))
        overdue = min([overdue, *(_overdue(manifest, now_ms) for manifest in manifests.values())])
    return Backlog(fullest, samples, _finite(oldest), _finite(overdue))


def _late_since(pending: PendingColumns, now_ms: int) -> float:
    """Since when the oldest cell of a closed hour waits: since that hour's end, or since it came."""
    ends = (pending.hour + 1) * HOUR_MS
    closed = np.flatnonzero(ends + DEFAULTS.grace_ms <= now_ms)
    if not len(closed):
        return math.inf
    return int(np.maximum(ends[closed], pending.ingest_ms[pending.record[closed]]).min())


def _overdue(manifest: Manifest, now_ms: int) -> float:
    """The end of the oldest closed hour without full merge or aggregates. A rolled-back hour waits for more data."""
    ends = [
        (hour + 1) * HOUR_MS
        for (shard, hour), entry in manifest.entries.items()
        if manifest.seal(hour) == OPEN and entry.state.generations and not entry.state.replay
        if is_closed(hour, now_ms) and not _has_aggregates(manifest, shard, hour)
    ]
    return min(ends, default=math.inf)


def _has_aggregates(manifest: Manifest, shard: int, hour: int) -> bool:
    """Whether aggregates of the present state exist, whatever they leave out: the agenda knows of retractions."""
    return manifest.valid_inputs(shard, hour) is not None


def _finite(ms: float) -> int | None:
    return None if ms == math.inf else int(ms)


def decide_start(
    backlog: Backlog,
    *,
    now_ms: int,
    last_spark_ms: int | None,
    last_failure_ms: int | None = None,
    thresholds: Thresholds = DEFAULTS,
    may_merge: bool = True,
) -> RunStart:
    """Decides whether a run starts now: on Spark for closed hours and large backlogs, a minor run for small ones.

    Closed hours wait while it is not the time to merge (``may_merge``); a large backlog does not.

    After a run that failed as a whole, nothing starts for a while, since the cause is probably still there; but a large
    backlog waits only as long as between any two runs on Spark, because queries read all of it.
    """
    is_gap_over = last_spark_ms is None or now_ms - last_spark_ms >= thresholds.spark_gap_ms
    has_failed = last_failure_ms is not None and now_ms - last_failure_ms < thresholds.failure_gap_ms
    if backlog.samples > thresholds.local_samples and (is_gap_over or not has_failed):
        return RunStart.SPARK
    if has_failed:
        return RunStart.NOTHING
    overdue = backlog.overdue_ms is not None and now_ms - backlog.overdue_ms >= thresholds.grace_ms
    if overdue and is_gap_over and may_merge:
        return RunStart.SPARK
    old = backlog.oldest_ms is not None and now_ms - backlog.oldest_ms >= thresholds.pending_age_ms
    if backlog.rows >= thresholds.pending_rows or backlog.samples >= thresholds.pending_samples or old:
        return RunStart.MINOR
    return RunStart.NOTHING
