"""Reads what a run plans from, in the order that PROTOCOL 9, 17 and 22 require; of too many records, the oldest.

``read_survey`` reads an app's agenda, its placement, its retractions and its pending records; then ``read_days`` reads
the manifests of the days with pending records and of those on the agenda, or of all days. What is read later may be
newer, never older.
"""

import logging
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rollups.decide import plan
from rollups.decide.plan import PendingCommit, Thresholds
from rollups.manifest import cells
from rollups.run import agenda
from rollups.run.agenda import Agenda
from spm import limits
from spm.errors import CorruptBlock
from spm.store import epochs as distribution
from spm.store import manifest
from spm.store.backends.base import Reader
from spm.store.keys import PlacementTable
from spm.store.ledger import commit_records
from spm.store.ledger.commit_records import PendingCell
from spm.store.manifest import Manifest
from spm.store.versions import retractions
from spm.store.versions.retractions import Retraction

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Survey:
    """The state of an app that a run plans from; ``pending`` has its pending records by day."""

    app: int
    agenda: Agenda
    placement: PlacementTable
    retractions: tuple[Retraction, ...]  # also ended ones
    pending: Mapping[int, Sequence[PendingCommit]]

    @property
    def active(self) -> tuple[Retraction, ...]:
        """The retractions in force."""
        return tuple(r for r in self.retractions if r.active())


def read_survey(reader: Reader, app: int) -> Survey:
    """Reads all of a ``Survey``, in the order that PROTOCOL 9 requires."""
    noted = agenda.read(reader, app)
    spread = distribution.read(reader, app)
    known = retractions.read(reader, app)
    pending = plan.group_by_day(_listed(reader, app, spread.all_shards(app)))
    return Survey(app, noted, spread, known, pending)


def _listed(reader: Reader, app: int, shards: Sequence[int]) -> Iterator[PendingCell]:
    """The pending records of an app; of more than one run takes, only the oldest of each shard."""
    for shard in shards:
        yield from deque(commit_records.scan(reader, app, [shard]), maxlen=limits.ROLL_CELLS_MAX)


def read_days(
    reader: Reader, survey: Survey, *, now_ms: int, thresholds: Thresholds, minor: bool, every: bool = False
) -> dict[int, bytes | None]:
    """Reads the manifest cells of the days to plan; ``None`` where there is none yet. ``every``: those of all days."""
    cells_of: dict[int, bytes | None] = dict.fromkeys(survey.pending)
    if every:
        return {**cells_of, **cells.scan_cells(reader, survey.app)}
    ranges = [] if minor else agenda.days_due(survey.agenda, survey.retractions, now_ms, thresholds.grace_ms)
    if any(last - first >= limits.AGENDA_DAYS_MAX for first, last in ranges):
        # For a range of ten years a scan of the existing cells costs less than a get of every day.
        existing = cells.scan_cells(reader, survey.app)
        inside = {day: cell for day, cell in existing.items() if any(a <= day <= b for a, b in ranges)}
        return {**{day: existing.get(day) for day in cells_of}, **inside}
    named = sorted({*cells_of, *(day for first, last in ranges for day in range(first, last + 1))})
    return {**cells_of, **cells.read_cells(reader, survey.app, named)}


def decode_manifests(app: int, day_cells: Mapping[int, bytes | None]) -> dict[int, Manifest]:
    """Decodes the manifests of these cells, by day; a damaged one is logged and left out."""
    values = {}
    for day, cell in sorted(day_cells.items()):
        try:
            values[day] = manifest.decode(cell)
        except CorruptBlock as error:
            _LOG.error("day %s of app %s is skipped: %s", day, app, error)
    return values
