"""Days from hours, month by month: which days lack their row, the tasks that make them, one flip per (app, month).

Enter by ``build``. The month's cell is read first, the manifests of its stale days once more after it: whoever has put
days in force for good meanwhile (their hours may be gone by now) has changed the cell, and the flip fails. A month is
never rebased; what is left is said, so that the next run looks there.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from rollups.crash_points import Hook
from rollups.decide import plan
from rollups.decide.outcome import days_task, month_after
from rollups.decide.plan import Order
from rollups.manifest import cells
from rollups.run import survey
from rollups.run.local import Executor
from spm.errors import CorruptBlock
from spm.store import keys, manifest
from spm.store.backends.base import Backend
from spm.store.manifest import Manifest, month_of

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Built:
    """Whether rows of days went in, and days that still lack theirs."""

    flipped: bool = False
    left: frozenset[int] = frozenset()


def by_month(manifests: Mapping[int, Manifest]) -> dict[int, dict[int, Manifest]]:
    """The days of each month."""
    months: dict[int, dict[int, Manifest]] = {}
    for day, value in sorted(manifests.items()):
        months.setdefault(month_of(day), {})[day] = value
    return months


def build(
    store: Backend,
    executor: Executor,
    run: int,
    app: int,
    month: int,
    manifests: Mapping[int, Manifest],
    *,
    order: Order,
    later: Order,
    at: Hook,
) -> Built:
    """Build the days of a month that lack their row; ``later``: an order by which more of them may be due, some day."""
    key = keys.manifest_month(app, month)
    cell = cells.read_cell(store, "manifest", key)
    try:
        in_force = manifest.decode_month(cell)
    except CorruptBlock as error:
        _LOG.error("month %s of app %s is left alone: %s", month, app, error)
        return Built()
    named = {stale.day for stale in plan.stale_days(in_force, manifests, later)}
    if not named:
        return Built()
    now = survey.decoded(app, cells.read_cells(store, app, sorted(named)))
    stale = plan.stale_days(in_force, now, order)
    tasks = [days_task(app, month, shard, in_force, stale) for shard in sorted({s.shard for s in stale})]
    packed = [p for p in executor.build_days(run, tasks) if p.made is not None] if tasks else []
    flipped = False
    if packed:
        value = manifest.encode_month(month_after(in_force, packed, stale))
        flipped = store.check_and_put("manifest", key, cells.COLUMN, cell, value)
        at("month flipped")
    done = {(s.shard, s.day) for s in stale for p in packed if flipped and p.shard == s.shard}
    wanted = plan.stale_days(in_force, now, later)
    return Built(flipped, frozenset(s.day for s in wanted if (s.shard, s.day) not in done))
