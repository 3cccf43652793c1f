"""The last seven days of rules, in cells of two hours: in which of them a rule fired, or could not be judged.

The database groups alerts by the cells in which they began and ended, so that a rule that flaps a thousand times a day
costs little more than one that never fires. Enter by ``read_weeks``.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from django.db.models import BigIntegerField, ExpressionWrapper, F, Q
from django.db.models.expressions import Combinable
from django.db.models.functions import Coalesce

from alerts.history import limits
from alerts.models import Aspect, Episode, EpisodeStatus
from spm.arrays import U8

CELL_MS, CELLS = 7_200_000, 84
_STATES = ("", "error", "firing")  # of a cell, the stronger last


@dataclass(frozen=True, slots=True)
class Stretch:
    """Cells of one state that follow each other."""

    first: int
    size: int
    state: str


@dataclass(frozen=True, slots=True)
class Week:
    """Seven days of a rule: how many cells it fired in, and could not be judged in, and where they lie."""

    firing: int
    error: int
    stretches: Sequence[Stretch]

    @property
    def text(self) -> str:
        """What the strip shows, as a text for who cannot see it."""
        parts = [f"fired in {self.firing}"] if self.firing else []
        parts += [f"could not be judged in {self.error}"] if self.error else []
        return f"{' and '.join(parts)} of {CELLS} parts of two hours" if parts else "nothing in seven days"


def read_weeks(rules: Collection[int], now_ms: int) -> dict[int, Week]:
    """Return rule → its week, which ends with the cell of ``now_ms``."""
    first = now_ms // CELL_MS - CELLS + 1
    cells = {rule: np.zeros(CELLS, dtype=np.uint8) for rule in rules}
    live = Q(status=EpisodeStatus.OPEN) | Q(status=EpisodeStatus.ENDED, end_ms__gt=first * CELL_MS)
    groups = (
        Episode.objects.filter(live, rule__in=rules, start_ms__lte=now_ms)
        .order_by()
        .values_list("rule", "aspect", _cell(F("start_ms")), _cell(Coalesce(F("end_ms"), now_ms + 1) - 1))
        .distinct()[: limits.WEEK_GROUPS_MAX]
    )
    for rule, aspect, begun, ended in groups:
        state = _STATES.index("error" if aspect == Aspect.ERROR else "firing")
        part = cells[rule][max(begun - first, 0) : ended - first + 1]
        np.maximum(part, state, out=part)
    return {rule: _week(row) for rule, row in cells.items()}


def _cell(time_ms: Combinable) -> Combinable:
    return ExpressionWrapper(time_ms / CELL_MS, output_field=BigIntegerField())


def _week(row: U8) -> Week:
    edges = pairwise([0, *(np.flatnonzero(np.diff(row)) + 1).tolist(), CELLS])
    stretches = [Stretch(begin, end - begin, _STATES[row[begin]]) for begin, end in edges if row[begin]]
    return Week(int((row == 2).sum()), int((row == 1).sum()), stretches)
