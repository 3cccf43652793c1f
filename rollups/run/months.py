"""Has the stale days of a month built from hours, and publishes each (app, month) by one check-and-put.

``plan.find_stale_days`` decides which days, and their order; ``compute.task.build_days`` builds them. Enter by
``publish_month``. It reads the month's cell first, and the manifests of the stale days once more after it: if another
process has published days meanwhile (whose hours may be deleted by now), the cell has changed and publishing fails. A
month is never rebased; the result names the remaining days, so that the next run does them.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from rollups.crash_points import Hook
from rollups.decide import plan
from rollups.decide.day_result import days_task, month_after
from rollups.decide.plan import PlanContext
from rollups.manifest import cells
from rollups.run import survey
from rollups.run.local import Executor
from spm.errors import CorruptBlock
from spm.store import keys, manifest
from spm.store.backends.base import Backend
from spm.store.manifest import Manifest, month_of

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MonthResult:
    """Whether daily rows were published, and the days that still lack theirs."""

    published: bool = False
    remaining: frozenset[int] = frozenset()


def by_month(manifests: Mapping[int, Manifest]) -> dict[int, dict[int, Manifest]]:
    """Groups manifests by month."""
    months: dict[int, dict[int, Manifest]] = {}
    for day, value in sorted(manifests.items()):
        months.setdefault(month_of(day), {})[day] = value
    return months


def publish_month(
    store: Backend,
    executor: Executor,
    run: int,
    app: int,
    month: int,
    manifests: Mapping[int, Manifest],
    *,
    context: PlanContext,
    later: PlanContext,
    at: Hook,
) -> MonthResult:
    """Builds the days of a month that lack their rows; ``later`` is a context in which more days may be due."""
    key = keys.manifest_month(app, month)
    cell = cells.read_cell(store, "manifest", key)
    try:
        in_force = manifest.decode_month(cell)
    except CorruptBlock as error:
        _LOG.error("month %s of app %s is skipped: %s", month, app, error)
        return MonthResult()
    stale_days = {stale.day for stale in plan.find_stale_days(in_force, manifests, later)}
    if not stale_days:
        return MonthResult()
    now = survey.decode_manifests(app, cells.read_cells(store, app, sorted(stale_days)))
    stale = plan.find_stale_days(in_force, now, context)
    tasks = [days_task(app, month, shard, in_force, stale) for shard in sorted({s.shard for s in stale})]
    packed = [p for p in executor.build_days(run, tasks) if p.generation is not None] if tasks else []
    published = False
    if packed:
        value = manifest.encode_month(month_after(in_force, packed, stale))
        published = store.check_and_put("manifest", key, cells.COLUMN, cell, value)
        at("month published")
    done = {(s.shard, s.day) for s in stale for p in packed if published and p.shard == s.shard}
    due_later = plan.find_stale_days(in_force, now, later)
    return MonthResult(published, frozenset(s.day for s in due_later if (s.shard, s.day) not in done))
