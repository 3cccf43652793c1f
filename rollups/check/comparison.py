"""Compares hours in force with a recount of their samples, as one job over many hours.

``plan_recount`` lists the hours that readers use, as tasks that name exactly their inputs; a Spark job counts them
again and joins the two (``frames.mismatches``); ``report_differences`` turns differences into findings. Nothing here
starts Spark.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rollups.check.findings import DIFFERS, UNKNOWN, Report
from rollups.decide.plan import MergeKind
from rollups.decide.work import HourShardTask, PackTask
from rollups.manifest import cells
from spm.limits import DAY_HOURS
from spm.store import epochs as store_epochs
from spm.store import keys, manifest
from spm.store.backends.base import Reader
from spm.store.keys import PlacementEpoch
from spm.store.manifest import SEALED, HourInputs, Manifest
from spm.store.versions import retractions
from spm.store.versions.retractions import Retraction


@dataclass(frozen=True, slots=True)
class SeriesDifference:
    """A series and hour that differs from a recount; ``what``: names of aggregates, or missing, or surplus."""

    shard: int
    hour: int
    metric: int
    series: int
    what: str


@dataclass(frozen=True, slots=True)
class RecountRequest:
    """The hours to count again, and the packs that hold their aggregates."""

    tasks: tuple[HourShardTask, ...]
    packs: tuple[PackTask, ...]


def plan_recount(reader: Reader, app: int, hours: Collection[int] | None, report: Report) -> RecountRequest:
    """Lists every hour that readers use and whose samples exist (``hours``: only these). Raises ``CorruptBlock``."""
    epochs = store_epochs.read(reader, app).epochs
    known = {r.number: r for r in retractions.read(reader, app)}
    tasks: list[HourShardTask] = []
    packs: list[PackTask] = []
    for day, cell in sorted(cells.scan_cells(reader, app).items()):
        value = manifest.decode(cell)
        for shard, pack in sorted(value.hours.items()):
            in_scope = [s for s in sorted(pack.hours) if hours is None or s in hours]
            exact = [s for s in in_scope if value.seal(s) < SEALED and value.valid_inputs(shard, s)]
            report.count(stale=sum(value.seal(s) < SEALED for s in in_scope) - len(exact))
            to_recount = [s for s in exact if _are_retractions_known(app, shard, s, pack.hours[s], known, report)]
            tasks += [_recount_task(app, shard, s, value, known, epochs) for s in to_recount]
            if to_recount:
                packs.append(PackTask(app, shard, day, pack.generation, tuple(to_recount), {}))
    return RecountRequest(tuple(tasks), tuple(packs))


def _are_retractions_known(
    app: int, shard: int, hour: int, of: HourInputs, known: dict[int, Retraction], report: Report
) -> bool:
    """Whether all retractions that an hour leaves out are known; adds a finding if not."""
    unknown = retractions.numbers(of.retractions) - known.keys()
    if unknown:
        key = keys.inputs(shard, app, hour // DAY_HOURS * DAY_HOURS, 0)
        report.add(UNKNOWN, "hours", key, f"hour {hour} leaves out unknown retractions: {sorted(unknown)}")
    return not unknown


def _recount_task(
    app: int, shard: int, hour: int, value: Manifest, known: dict[int, Retraction], epochs: tuple[PlacementEpoch, ...]
) -> HourShardTask:
    state = value.entry(shard, hour).state
    numbers = retractions.numbers(value.hours[shard].hours[hour].retractions)
    return HourShardTask(
        app,
        shard,
        hour,
        MergeKind.RECOUNT,
        state.generations,
        state.replay,
        (),
        0,
        wants_hours=True,
        retractions=tuple(known[n] for n in sorted(numbers)),
        epochs=epochs,
    )


def report_differences(
    app: int, request: RecountRequest, differences: Sequence[SeriesDifference], report: Report
) -> None:
    """Adds what was compared and what differs to the report."""
    report.count(hours=len(request.tasks))
    generations = {(p.shard, p.day): p.old.number for p in request.packs if p.old is not None}
    for d in differences:
        day = d.hour // DAY_HOURS
        key = keys.hours(d.shard, app, d.metric, day, generations[d.shard, day], 0)
        report.add(DIFFERS, "hours", key, f"hour {d.hour}, series {d.series:016x}: {d.what}")
