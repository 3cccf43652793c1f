"""The world of the expiry tests: three hours of samples, and the retention of one app."""

from rollups.crash_points import Hook, ignore_point
from rollups.decide.retention import RetentionPeriods
from rollups.delete.expire import ExpiryResult, expire
from rollups.delete.purge import every_shard
from rollups.run.local import LocalExecutor
from spm.limits import DAY_HOURS, HOUR_MS
from spm.store import keys
from spm.store.encoding import blocks
from spm.store.ledger import commit_records
from tests.model.world import APP, DAY, START, World

DAY_MS = DAY_HOURS * HOUR_MS
HOUR = DAY * DAY_HOURS
HOURS = range(HOUR, HOUR + DAY_HOURS)
LATER = START + 3 * DAY_MS  # when a retention of one day is over for the day
RAW = ("chunks", "timelines", "log")


def filled() -> World:
    """Samples of two metrics in three hours, in both shards, merged and aggregated."""
    world = World()
    world.send((0, 1, 1.0), (1, 2, 2.0), (2, 3, 5.0), (0, HOUR_MS + 1, 4.0))
    world.send((0, 2, 7.0), (2, 5 * HOUR_MS, 8.0), source="b")
    world.roll()
    return world


def expire_app(
    world: World,
    *,
    raw: int | None = 1,
    hour: int | None = None,
    day: int | None = None,
    now_ms: int = LATER,
    at: Hook = ignore_point,
) -> ExpiryResult:
    """Retention of the app, by default of samples of a day."""
    executor = LocalExecutor(world.store, at)
    return expire(world.driver(at), executor, APP, RetentionPeriods(raw, hour, day), now_ms=now_ms)


def rows(world: World, *tables: str) -> int:
    """Rows of the app in tables."""
    ranges = [(t, keys.app_range(b, APP)) for t in tables for b in every_shard(world.store, APP)]
    return sum(1 for table, (start, stop) in ranges for _ in world.store.scan(table, start, stop))


def with_late_data() -> World:
    """Hours of two hours that are stale."""
    world = filled()
    world.send((0, 9, 9.0), (2, 1, 3.0), (2, 5 * HOUR_MS + 1, 4.0))
    return world


def outcomes(world: World, outcome_to_count: int) -> int:
    """Samples with this outcome in the ledger."""
    count = 0
    for _, row in world.store.scan("ledger", *keys.ledger_range(APP)):
        commit, outcome, _ = commit_records.decode_ledger_row(row[b"v"], blocks.LEDGER)
        count += commit.sample_count if outcome == outcome_to_count else 0
    return count
