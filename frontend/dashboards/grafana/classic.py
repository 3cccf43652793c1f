"""Reads a dashboard of Grafana's classic schema: a list of panels on a grid, or rows of panels before version 16. Pure.

Enter by ``read_value``, which takes V2 as well: ``schema_v2`` puts that into the classic form first.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from frontend.dashboards.document import Document, PanelSpec, VariableSpec
from frontend.dashboards.grafana import schema_v2
from frontend.dashboards.grafana.panels import Place, read_panel
from frontend.dashboards.grafana.report import Imported, Line
from frontend.dashboards.grafana.variables import read_variable
from frontend.dashboards.limits import (
    COLUMNS,
    PANELS_MAX,
    ROWS_MAX,
    TAG_CHARS_MAX,
    TAGS_MAX,
    TITLE_CHARS_MAX,
    VARIABLES_MAX,
)
from spm.errors import Refused

_SPAN = 12  # columns of the grid before version 16
_ROW_PIXELS = 38  # height and gap of one row of the grid
_OLD_HEIGHT = 7  # rows of a panel that does not say its height

Json = Mapping[str, Any]


def read_value(value: object) -> Imported:
    """Read a dashboard from JSON's values, whatever wraps it."""
    inside = value.get("dashboard", value) if isinstance(value, Mapping) else value
    if not isinstance(inside, Mapping):
        raise Refused("this is no dashboard", got=type(inside).__name__, wanted="a JSON object")
    try:
        classic = schema_v2.as_classic(inside) if schema_v2.is_v2(inside) else inside
        if isinstance(classic.get("panels", classic.get("rows")), list):
            return _read(classic)
    except (AttributeError, TypeError, ValueError, KeyError, OverflowError, RecursionError) as error:
        raise Refused("a part of this dashboard has another form than Grafana gives it", got=str(error)) from error
    raise Refused("this is no dashboard of Grafana's", wanted="“panels” of the classic schema, or “elements” of V2")


def _read(classic: Json) -> Imported:
    lines: list[Line] = []
    variables: list[VariableSpec] = []
    for each in (classic.get("templating") or {}).get("list") or []:
        variable, line = read_variable(each)
        if variable is not None and len(variables) == VARIABLES_MAX:
            variable, line = None, replace(line, notes=[f"there are more than {VARIABLES_MAX}"], is_left_out=True)
        if variable is not None and any(variable.name == other.name for other in variables):
            variable, line = None, replace(line, notes=["another one has its name"], is_left_out=True)
        variables.extend([] if variable is None else [variable])
        lines.append(line)
    panels: list[PanelSpec] = []
    for each, place in _placed(classic):
        if len(panels) == PANELS_MAX:
            title, kind = str(each.get("title") or "")[:TITLE_CHARS_MAX], str(each.get("type", ""))
            lines.append(Line("panel", title, kind, [f"there are more than {PANELS_MAX}"], is_left_out=True))
            continue
        panel, line = _read_one(each, len(panels) + 1, place)
        panels.extend([] if panel is None else [panel])
        lines.append(line)
    title = str(classic.get("title") or "").strip()[:TITLE_CHARS_MAX] or "Imported dashboard"
    tags = [str(each)[:TAG_CHARS_MAX] for each in classic.get("tags") or []][:TAGS_MAX]
    return Imported(
        Document(title, str(classic.get("description") or "")[:TITLE_CHARS_MAX], tags, variables, panels), lines
    )


def _read_one(panel: Json, number: int, place: Place) -> tuple[PanelSpec | None, Line]:
    if panel.get("type") != "row":
        return read_panel(panel, number, place)
    title = str(panel.get("title") or "")[:TITLE_CHARS_MAX]
    notes = [f"it is drawn once, not for each value of ${panel['repeat']}"] if panel.get("repeat") else []
    y, is_folded = min(max(place.y, 0), ROWS_MAX), bool(panel.get("collapsed"))
    spec = PanelSpec(number, "row", title, x=0, y=y, w=COLUMNS, h=1, folded=is_folded)
    return spec, Line("panel", title, "row", notes)


def _placed(classic: Json) -> Iterator[tuple[Json, Place]]:
    """Yield each panel with its place; those of a folded row stand below it, where they are when it is open."""
    if "panels" not in classic and classic.get("rows"):
        yield from _of_rows(classic["rows"])
        return
    shift = 0
    for panel in classic["panels"]:
        place = _place_of(panel)
        yield panel, replace(place, y=place.y + shift)
        inside = panel.get("panels") or []
        if panel.get("type") == "row" and inside:
            top = min(_place_of(each).y for each in inside)
            places = [_place_of(each) for each in inside]
            for each, own in zip(inside, places, strict=True):
                yield each, replace(own, y=own.y - top + place.y + shift + 1)
            shift += max(own.y + own.h for own in places) - top


def _of_rows(rows: Sequence[Json]) -> Iterator[tuple[Json, Place]]:
    y = 0
    for row in rows:
        if row.get("showTitle") or row.get("collapse"):
            head = {"title": row.get("title"), "repeat": row.get("repeat"), "collapsed": row.get("collapse")}
            yield {"type": "row", **head}, Place(0, y, COLUMNS, 1)
            y += 1
        x, height = 0, _rows_of(row.get("height"))
        for panel in row.get("panels") or []:
            width = round(float(panel.get("span") or _SPAN) * COLUMNS / _SPAN)
            if x + width > COLUMNS:
                x, y = 0, y + height
            yield panel, Place(x, y, width, height)
            x += width
        y += height if row.get("panels") else 0


def _rows_of(height: object) -> int:
    digits = "".join(each for each in str(height or "") if each.isdigit())
    return max(round(int(digits) / _ROW_PIXELS), 2) if digits else _OLD_HEIGHT


def _place_of(panel: Json) -> Place:
    given = panel.get("gridPos") or {}
    x, y, w, h = (int(given.get(name) or default) for name, default in (("x", 0), ("y", 0), ("w", 12), ("h", 8)))
    return Place(x, min(max(y, 0), ROWS_MAX), w, h)
