"""How ready dashboards are written: panels one after another, which flow onto the grid from left to right. Pure.

Enter by ``ReadyDashboard``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from frontend.dashboards.document import Document, PanelQuery, PanelSpec, VariableSpec
from frontend.dashboards.limits import COLUMNS


@dataclass(frozen=True, slots=True)
class ReadyDashboard:
    """A dashboard that is offered where every one of its ``signs``, names of metrics, arrives."""

    key: str
    title: str
    description: str
    signs: Sequence[str]
    variables: Sequence[VariableSpec]
    panels: Sequence[PanelSpec]

    def document(self) -> Document:
        """Return what a copy of it begins with."""
        return Document(self.title, self.description, [self.key.split("-")[0]], self.variables, _flow(self.panels))


def chart(title: str, *queries: tuple[str, str], unit: str = "", kind: str = "line") -> PanelSpec:
    """Write a chart of half the width; each query with its legend."""
    return PanelSpec(0, kind, title, unit=unit, queries=_queries(queries), w=12, h=7)


def stat(title: str, expr: str, unit: str = "") -> PanelSpec:
    """Write one number of a quarter of the width."""
    return PanelSpec(0, "stat", title, unit=unit, queries=_queries([(expr, "")]), w=6, h=3)


def choice(name: str, label: str, query: str) -> VariableSpec:
    """Write a variable of which several values, or all, can be chosen."""
    return VariableSpec(name, label=label, query=query, multi=True, all=True)


def _queries(pairs: Sequence[tuple[str, str]]) -> list[PanelQuery]:
    return [PanelQuery(expr, legend) for expr, legend in pairs]


def _flow(panels: Sequence[PanelSpec]) -> list[PanelSpec]:
    """Give panels numbers and places: a line begins where the one before has no room, below its highest panel."""
    placed, x, y, height = list[PanelSpec](), 0, 0, 0
    for number, panel in enumerate(panels, 1):
        if x + panel.w > COLUMNS:
            x, y, height = 0, y + height, 0
        placed.append(replace(panel, number=number, x=x, y=y))
        x, height = x + panel.w, max(height, panel.h)
    return placed
