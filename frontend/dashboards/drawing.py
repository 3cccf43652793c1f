"""What a page draws of a dashboard: its panels with variables filled in, repeated ones once for each value. Pure.

Of several queries each has a letter, which names it in answers. Enter by ``drawn``.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import orjson
from markdown_it import MarkdownIt

from frontend.dashboards.document import Document, PanelSpec
from frontend.dashboards.limits import (
    CELLS_MAX,
    COLUMNS,
    DRAWN_MAX,
    QUERIES_CHARS_MAX,
    REPEATED_MAX,
    TEXT_CHARS_MAX,
    TEXTS_CHARS_MAX,
)
from frontend.dashboards.variables import Variable, fill
from spm.limits import QUERY_TEXT_CHARS_MAX

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_plain = MarkdownIt("commonmark", {"html": False}).disable("image")  # nothing of foreign sites
_markdown = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")


@dataclass(frozen=True, slots=True)
class DrawnPanel:
    """A panel as a page shows it. ``problem``: why it cannot be drawn, or not all of it."""

    spec: PanelSpec
    title: str
    queries: Sequence[Mapping[str, str]] = ()  # name, expr and legend of each; the name of a single one is empty
    html: str = ""
    problem: str = ""
    size: int = 0  # signs of its queries and legends, also of those that are too long

    @property
    def expr(self) -> str:
        """Its first query, for links to where one expression is shown."""
        return self.queries[0]["expr"] if self.queries else ""

    @property
    def queries_json(self) -> str:
        """Its queries, for the script of the page."""
        return orjson.dumps([{"name": each["name"], "expr": each["expr"]} for each in self.queries]).decode()

    @property
    def legends(self) -> str:
        """The legend of each query by its name, for the script of the page."""
        return orjson.dumps({each["name"]: each["legend"] for each in self.queries}).decode()

    @property
    def place(self) -> str:
        """Its place on the grid, for the script of the page."""
        return f"{self.spec.x} {self.spec.y} {self.spec.w} {self.spec.h}"


def drawn(document: Document, variables: Sequence[Variable], *, once: bool = False) -> list[DrawnPanel]:
    """Return the panels from top to bottom, at most ``DRAWN_MAX``; ``once``: repeated ones for their first value.

    A panel whose place a copy has taken moves down.
    """
    known = {each.spec.name: each for each in variables}
    panels: list[tuple[PanelSpec, Sequence[Variable]]] = []
    added: list[tuple[int, int]] = []  # below which row of the grid → so many rows more
    bottoms = [0] * COLUMNS  # of each column: the first row that is free
    for spec in sorted(document.panels, key=lambda each: (each.y, each.x)):
        if len(panels) >= DRAWN_MAX:
            break
        moved = replace(spec, y=spec.y + sum(rows for y, rows in added if y < spec.y))
        variable = known.get(spec.repeat)
        if variable is None or len(variable.values) < 2:
            panels.append((_put_below(moved, bottoms), variables))
            continue
        copies = [
            (_put_below(copy, bottoms), one) for copy, one in list(_copies(moved, variable))[: 1 if once else None]
        ]
        panels.extend((copy, [each for each in variables if each is not variable] + [one]) for copy, one in copies)
        added.append((spec.y, max(copy.y for copy, _ in copies) - moved.y))
    return _bounded(panels[:DRAWN_MAX])


def _put_below(spec: PanelSpec, bottoms: list[int]) -> PanelSpec:
    """Move a panel down to where its columns are free, and take its place there."""
    y = max(spec.y, *bottoms[spec.x : spec.x + spec.w])
    bottoms[spec.x : spec.x + spec.w] = [y + spec.h] * spec.w
    return replace(spec, y=y)


def _bounded(panels: Sequence[tuple[PanelSpec, Sequence[Variable]]]) -> list[DrawnPanel]:
    """Draw panels while the page has room for their queries and texts; those below say that it has none."""
    drawn_panels: list[DrawnPanel] = []
    queries_size = texts_size = 0
    for spec, variables in panels:
        if texts_size > TEXTS_CHARS_MAX if spec.kind == "text" else queries_size > QUERIES_CHARS_MAX:
            drawn_panels.append(DrawnPanel(spec, spec.title, problem="The page has no room for it: too much is above."))
            continue
        panel = draw(spec, variables)
        drawn_panels.append(panel)
        queries_size += panel.size
        texts_size += max(len(panel.html), len(spec.text))
    return drawn_panels


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
        return DrawnPanel(spec, title, html=_html(fill(spec.text, variables, style="markdown", most=TEXT_CHARS_MAX)))
    most = QUERY_TEXT_CHARS_MAX
    queries = [
        (fill(each.expr, variables, style="promql", most=most), each) for each in spec.queries if each.expr.strip()
    ]
    if not queries:
        return DrawnPanel(spec, title, problem="It asks for nothing yet.")
    letters = _LETTERS if len(queries) > 1 else ("",)
    named = [
        {"name": letter, "expr": expr, "legend": fill(query.legend, variables)}
        for letter, (expr, query) in zip(letters, queries, strict=False)
    ]
    fitting = [each for each in named if len(each["expr"]) <= QUERY_TEXT_CHARS_MAX]
    missing = len(named) - len(fitting)
    problem = f"{missing} of {len(named)} queries are longer than {QUERY_TEXT_CHARS_MAX:,} signs." if missing else ""
    size = sum(len(each["expr"]) + len(each["legend"]) for each in named)
    return DrawnPanel(spec, title, fitting, problem=problem, size=size)


def _html(text: str) -> str:
    """Write Markdown as HTML; tables of too many cells stay as they are typed."""
    lines = text.splitlines()
    cells = len(lines) * max((line.count("|") for line in lines), default=0)
    html: str = (_markdown if cells <= CELLS_MAX else _plain).render(text)
    return html
