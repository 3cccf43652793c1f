"""What a page draws of a dashboard: its panels with variables filled in, repeated ones once for each value. Pure.

A panel of several queries is one expression: the label ``QUERY_LABEL`` of each series names the query that it answers.
Enter by ``drawn``.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from markdown_it import MarkdownIt

from frontend.dashboards.document import Document, PanelSpec
from frontend.dashboards.limits import COLUMNS, DRAWN_MAX, REPEATED_MAX
from frontend.dashboards.variables import Variable, fill
from spm.limits import QUERY_TEXT_CHARS_MAX

QUERY_LABEL = "__query__"
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_markdown = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")  # nothing of foreign sites


@dataclass(frozen=True, slots=True)
class DrawnPanel:
    """A panel as a page shows it. ``problem``: why it cannot be drawn, or not all of it."""

    spec: PanelSpec
    title: str
    expr: str = ""
    legends: str = "{}"
    html: str = ""
    problem: str = ""

    @property
    def place(self) -> str:
        """Its place on the grid, for the script of the page."""
        return f"{self.spec.x} {self.spec.y} {self.spec.w} {self.spec.h}"


def drawn(document: Document, variables: Sequence[Variable]) -> list[DrawnPanel]:
    """Return the panels from top to bottom, at most ``DRAWN_MAX``."""
    known = {each.spec.name: each for each in variables}
    panels: list[DrawnPanel] = []
    added: list[tuple[int, int]] = []  # below which row of the grid → so many rows more
    for spec in sorted(document.panels, key=lambda each: (each.y, each.x)):
        if len(panels) >= DRAWN_MAX:
            break
        moved = replace(spec, y=spec.y + sum(rows for y, rows in added if y < spec.y))
        variable = known.get(spec.repeat)
        if variable is None or len(variable.values) < 2:
            panels.append(draw(moved, variables))
            continue
        copies = list(_copies(moved, variable))
        panels.extend(draw(copy, [each for each in variables if each is not variable] + [one]) for copy, one in copies)
        added.append((spec.y, max(copy.y for copy, _ in copies) - moved.y))
    return panels[:DRAWN_MAX]


def _copies(spec: PanelSpec, variable: Variable) -> Iterator[tuple[PanelSpec, Variable]]:
    """Yield a copy of a repeated panel for each value, side by side as far as the grid is wide."""
    beside = max((COLUMNS - spec.x) // spec.w, 1)
    for at, value in enumerate(variable.values[:REPEATED_MAX]):
        one = replace(variable, values=[value], is_all=False)
        yield replace(spec, x=spec.x + at % beside * spec.w, y=spec.y + at // beside * spec.h), one


def draw(spec: PanelSpec, variables: Sequence[Variable]) -> DrawnPanel:
    """Fill in one panel."""
    title = fill(spec.title, variables)
    if spec.kind == "row":
        return DrawnPanel(spec, title)
    if spec.kind == "text":
        return DrawnPanel(spec, title, html=_markdown.render(fill(spec.text, variables, style="markdown")))
    queries = [query for query in spec.queries if query.expr.strip()]
    if not queries:
        return DrawnPanel(spec, title, problem="It asks for nothing yet.")
    exprs = [fill(query.expr, variables, style="promql") for query in queries]
    expr, fitting = _joined(exprs)
    if not fitting:
        return DrawnPanel(spec, title, problem=f"Its query is longer than {QUERY_TEXT_CHARS_MAX:,} signs.")
    letters = _LETTERS if len(queries) > 1 else ("",)
    legends = {letter: fill(query.legend, variables) for letter, query in zip(letters, queries, strict=False)}
    problem = f"Only its first {fitting} of {len(exprs)} queries fit into one." if fitting < len(exprs) else ""
    return DrawnPanel(spec, title, expr, json.dumps(legends), problem=problem)


def _joined(exprs: Sequence[str]) -> tuple[str, int]:
    """Join as many expressions as fit; each one's series get its letter."""
    if len(exprs) == 1:
        return exprs[0], int(len(exprs[0]) <= QUERY_TEXT_CHARS_MAX)
    parts = [
        f'label_replace({each}\n, "{QUERY_LABEL}", "{name}", "", "")'
        for name, each in zip(_LETTERS, exprs, strict=False)
    ]
    count = len(parts)
    while count and len(" or ".join(parts[:count])) > QUERY_TEXT_CHARS_MAX:
        count -= 1
    return " or ".join(parts[:count]), count
