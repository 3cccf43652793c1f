"""What a run reads before it decides, in the order that the rules ask for (9, 17 and 22). Nothing here writes.

``survey`` reads an app's agenda, its distribution, its retractions and its pending cells; then ``days`` reads
manifests: of the days with pending cells and of those that the agenda names, or of all of them. What is read later may
be newer, never older.
"""

import logging
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rollups.decide import plan
from rollups.decide.plan import Thresholds, Waiting
from rollups.manifest import cells
from rollups.run import agenda
from rollups.run.agenda import Agenda
from spm import limits
from spm.errors import CorruptBlock
from spm.store import epochs as distribution
from spm.store import manifest
from spm.store.backends.base import Reader
from spm.store.keys import Distribution
from spm.store.ledger import commit_records
from spm.store.ledger.commit_records import PendingCell
from spm.store.manifest import Manifest
from spm.store.versions import retractions
from spm.store.versions.retractions import Retraction

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Survey:
    """An app as a run finds it; ``waiting``: its pending cells by day."""

    app: int
    agenda: Agenda
    distribution: Distribution
    retractions: tuple[Retraction, ...]  # ended ones, too
    waiting: Mapping[int, Sequence[Waiting]]

    @property
    def active(self) -> tuple[Retraction, ...]:
        """The retractions in force."""
        return tuple(r for r in self.retractions if r.active())


def survey(reader: Reader, app: int) -> Survey:
    """Look around in an app."""
    noted = agenda.read(reader, app)
    spread = distribution.read(reader, app)
    known = retractions.read(reader, app)
    waiting = plan.by_day(_listed(reader, app, spread.all(app)))
    return Survey(app, noted, spread, known, waiting)


def _listed(reader: Reader, app: int, shards: Sequence[int]) -> Iterator[PendingCell]:
    """The pending cells of an app; of a heap larger than one run takes, the oldest of each shard."""
    for shard in shards:
        yield from deque(commit_records.scan(reader, app, [shard]), maxlen=limits.ROLL_CELLS_MAX)


def days(
    reader: Reader, found: Survey, *, now_ms: int, thresholds: Thresholds, minor: bool, every: bool = False
) -> dict[int, bytes | None]:
    """The manifest cells of the days to look at; ``None`` where there is none yet. ``every``: of all there are."""
    cells_of: dict[int, bytes | None] = dict.fromkeys(found.waiting)
    if every:
        return {**cells_of, **cells.scan_cells(reader, found.app)}
    ranges = [] if minor else agenda.days_due(found.agenda, found.retractions, now_ms, thresholds.grace_ms)
    if any(last - first >= limits.AGENDA_DAYS_MAX for first, last in ranges):
        # A range of ten years: the cells that there are cost less than asking for each day by name.
        there = cells.scan_cells(reader, found.app)
        inside = {day: cell for day, cell in there.items() if any(a <= day <= b for a, b in ranges)}
        return {**{day: there.get(day) for day in cells_of}, **inside}
    wanted = sorted({*cells_of, *(day for first, last in ranges for day in range(first, last + 1))})
    return {**cells_of, **cells.read_cells(reader, found.app, wanted)}


def decoded(app: int, found: Mapping[int, bytes | None]) -> dict[int, Manifest]:
    """The manifests of these cells, by day; a damaged one is left alone, and said."""
    values = {}
    for day, cell in sorted(found.items()):
        try:
            values[day] = manifest.decode(cell)
        except CorruptBlock as error:
            _LOG.error("day %s of app %s is left alone: %s", day, app, error)
    return values
