"""What became of each panel and variable of an imported dashboard. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from frontend.dashboards.document import Document


class Fate(StrEnum):
    """What became of a panel or a variable."""

    SAME = "imported"
    CHANGED = "changed"
    LEFT_OUT = "left out"


@dataclass(frozen=True, slots=True)
class Line:
    """One panel or variable: what it is there, what it became, and each change or the reason why it is left out."""

    what: str  # panel or variable
    title: str
    kind: str  # as Grafana calls it
    notes: Sequence[str] = ()
    is_left_out: bool = False

    @property
    def fate(self) -> Fate:
        """What became of it."""
        if self.is_left_out:
            return Fate.LEFT_OUT
        return Fate.CHANGED if self.notes else Fate.SAME


@dataclass(frozen=True, slots=True)
class Imported:
    """A document, and a line for everything that the original held."""

    document: Document
    lines: Sequence[Line] = field(default=())

    def count(self, fate: Fate, what: str = "panel") -> int:
        """How many panels, or variables, have this fate."""
        return sum(line.fate is fate and line.what == what for line in self.lines)

    @property
    def counts(self) -> dict[str, int]:
        """For a page: how many panels were imported as they are, changed, and left out."""
        return {fate.name.lower(): self.count(fate) for fate in Fate}
