"""Hours in force beside a recount of their samples, as one job over many hours: what is asked, and what it finds.

``asked`` lists the hours that readers use, as tasks that name exactly what those were made of; a Spark job counts them
anew and joins the two (``frames.mismatches``); ``told`` makes findings of what differs. Nothing here starts Spark.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rollups.check.findings import DIFFERS, UNKNOWN, Report
from rollups.decide.plan import Kind
from rollups.decide.work import PackTask, UnitTask
from rollups.manifest import cells
from spm.limits import DAY_HOURS
from spm.store import epochs as store_epochs
from spm.store import keys, manifest
from spm.store.backends.base import Reader
from spm.store.keys import Epoch
from spm.store.manifest import SEALED, HourInputs, Manifest
from spm.store.versions import retractions
from spm.store.versions.retractions import Retraction


@dataclass(frozen=True, slots=True)
class Difference:
    """One series and hour that a recount says otherwise; ``what``: names of aggregates, or missing, or surplus."""

    shard: int
    hour: int
    metric: int
    series: int
    what: str


@dataclass(frozen=True, slots=True)
class Asked:
    """Hours to be counted anew, and the packs in which they stand."""

    units: tuple[UnitTask, ...]
    packs: tuple[PackTask, ...]


def asked(reader: Reader, app: int, hours: Collection[int] | None, report: Report) -> Asked:
    """Every hour that readers use and whose samples are there (``hours``: only these). Raises ``CorruptBlock``."""
    epochs = store_epochs.read(reader, app).epochs
    known = {r.number: r for r in retractions.read(reader, app)}
    units: list[UnitTask] = []
    packs: list[PackTask] = []
    for day, cell in sorted(cells.scan_cells(reader, app).items()):
        value = manifest.decode(cell)
        for shard, pack in sorted(value.hours.items()):
            chosen = [s for s in sorted(pack.hours) if hours is None or s in hours]
            exact = [s for s in chosen if value.seal(s) < SEALED and value.counted(shard, s)]
            report.count(stale=sum(value.seal(s) < SEALED for s in chosen) - len(exact))
            kept = [s for s in exact if _known(app, shard, s, pack.hours[s], known, report)]
            units += [_unit(app, shard, s, value, known, epochs) for s in kept]
            if kept:
                packs.append(PackTask(app, shard, day, pack.generation, tuple(kept), {}))
    return Asked(tuple(units), tuple(packs))


def _known(app: int, shard: int, hour: int, of: HourInputs, known: dict[int, Retraction], report: Report) -> bool:
    """Whether all that an hour leaves out is known; else that is a finding."""
    lost = retractions.numbers(of.retractions) - known.keys()
    if lost:
        key = keys.inputs(shard, app, hour // DAY_HOURS * DAY_HOURS, 0)
        report.add(UNKNOWN, "hours", key, f"hour {hour} leaves out retractions nobody knows: {sorted(lost)}")
    return not lost


def _unit(
    app: int, shard: int, hour: int, value: Manifest, known: dict[int, Retraction], epochs: tuple[Epoch, ...]
) -> UnitTask:
    state = value.entry(shard, hour).state
    numbers = retractions.numbers(value.hours[shard].hours[hour].retractions)
    return UnitTask(
        app,
        shard,
        hour,
        Kind.RECOUNT,
        state.generations,
        state.replay,
        (),
        0,
        hours=True,
        retractions=tuple(known[n] for n in sorted(numbers)),
        epochs=epochs,
    )


def told(app: int, question: Asked, found: Sequence[Difference], report: Report) -> None:
    """Note what was compared and what differs."""
    report.count(hours=len(question.units))
    generations = {(p.shard, p.day): p.old.number for p in question.packs if p.old is not None}
    for d in found:
        day = d.hour // DAY_HOURS
        key = keys.hours(d.shard, app, d.metric, day, generations[d.shard, day], 0)
        report.add(DIFFERS, "hours", key, f"hour {d.hour}, series {d.series:016x}: {d.what}")
