"""Puts a dashboard of Grafana's schema V2 into the form of the classic one. Pure.

V2 keeps panels as named elements, and their places in a layout: a grid, an automatic grid, rows or tabs, each within
others. Tabs and rows become rows here, one below the other.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Json = Mapping[str, Any]
_HEIGHT = 8  # rows of a panel in an automatic grid
_COLUMNS = 24


@dataclass(slots=True)
class _Grid:
    """The panels so far, and the first free row below them."""

    panels: list[dict[str, Any]] = field(default_factory=list)
    bottom: int = 0

    def add(self, panel: dict[str, Any]) -> None:
        """Append a panel."""
        place = panel["gridPos"]
        self.panels.append(panel)
        self.bottom = max(self.bottom, int(place.get("y") or 0) + int(place.get("h") or 1))


def is_v2(value: Json) -> bool:
    """Whether this is schema V2, with or without the wrapper of Kubernetes' kind."""
    spec = value.get("spec", value)
    return isinstance(spec, Mapping) and isinstance(spec.get("elements"), Mapping)


def as_classic(value: Json) -> dict[str, Any]:
    """Return the same dashboard in the classic form."""
    spec = value.get("spec", value)
    grid = _Grid()
    seen: set[str] = set()
    _lay_out(spec, spec.get("layout") or {}, grid, seen)
    for name, element in spec["elements"].items():
        if name not in seen:  # an element without a place is shown below all others
            grid.add(_panel(element, {"x": 0, "y": grid.bottom, "w": 12, "h": _HEIGHT}))
    return {
        "title": spec.get("title"),
        "description": spec.get("description"),
        "tags": spec.get("tags"),
        "templating": {"list": [_variable(each) for each in spec.get("variables") or []]},
        "panels": grid.panels,
    }


def _lay_out(spec: Json, layout: Json, grid: _Grid, seen: set[str]) -> None:
    """Append the panels of a layout below those that are there."""
    top, inside = grid.bottom, layout.get("spec") or {}
    for element, place in _items(layout.get("kind", ""), inside, top):
        name = str((element or {}).get("name"))
        if name in spec["elements"]:
            grid.add(_panel(spec["elements"][name], place))
            seen.add(name)
    for part in [*(inside.get("rows") or []), *(inside.get("tabs") or [])]:
        own = part.get("spec") or {}
        repeat = (own.get("repeat") or {}).get("value")
        title = {"type": "row", "title": own.get("title"), "gridPos": {"y": grid.bottom, "w": _COLUMNS, "h": 1}}
        if not own.get("hideHeader"):
            grid.add({**title, **({"repeat": repeat} if repeat else {})})
        _lay_out(spec, own.get("layout") or {}, grid, seen)


def _items(kind: str, inside: Json, top: int) -> Iterator[tuple[Json, dict[str, Any]]]:
    items = [each.get("spec") or {} for each in inside.get("items") or []]
    if kind == "AutoGridLayout":
        columns = max(int(inside.get("maxColumnCount") or 3), 1)
        width = max(_COLUMNS // columns, 1)
        for at, item in enumerate(items):
            place: dict[str, Any] = {
                "x": at % columns * width,
                "y": top + at // columns * _HEIGHT,
                "w": width,
                "h": _HEIGHT,
            }
            yield item.get("element") or {}, place
        return
    for item in items:
        for nested in item.get("elements") or []:  # a row of V2's first version: its panels, without its title
            yield from _items("", {"items": [nested]}, top + int(item.get("y") or 0))
        if "element" in item:
            repeat = (item.get("repeat") or {}).get("value")
            place = {"x": item.get("x"), "y": top + int(item.get("y") or 0), "w": item.get("width")}
            yield item["element"], {**place, "h": item.get("height"), **({"repeat": repeat} if repeat else {})}


def _panel(element: Json, place: dict[str, Any]) -> dict[str, Any]:
    spec = element.get("spec") or {}
    repeat = place.pop("repeat", "")
    if element.get("kind") == "LibraryPanel":
        return {"type": "", "title": spec.get("title"), "libraryPanel": spec.get("libraryPanel"), "gridPos": place}
    view, data = spec.get("vizConfig") or {}, (spec.get("data") or {}).get("spec") or {}
    inside, changes = view.get("spec") or {}, data.get("transformations") or []
    return {
        "type": view.get("group") or view.get("kind"),
        "title": spec.get("title"),
        "description": spec.get("description"),
        "options": inside.get("options") or {},
        "fieldConfig": inside.get("fieldConfig") or {},
        "targets": [_target(each.get("spec") or {}) for each in data.get("queries") or []],
        "transformations": [{"id": each.get("group") or each.get("kind")} for each in changes],
        "repeat": repeat,
        "gridPos": place,
    }


def _target(query: Json) -> dict[str, Any]:
    inside = query.get("query") or {}
    kind = inside.get("group") or inside.get("kind")
    source = query.get("datasource") or inside.get("datasource") or {}
    return {
        **(inside.get("spec") or {}),
        "refId": query.get("refId"),
        "hide": query.get("hidden"),
        "datasource": {"type": kind if kind not in (None, "DataQuery") else source.get("type", "prometheus")},
    }


_KINDS = {
    "QueryVariable": "query",
    "CustomVariable": "custom",
    "IntervalVariable": "interval",
    "ConstantVariable": "constant",
    "TextVariable": "textbox",
    "DatasourceVariable": "datasource",
    "AdhocVariable": "adhoc",
    "GroupByVariable": "groupby",
    "SwitchVariable": "switch",
}


def _variable(variable: Json) -> dict[str, Any]:
    spec, kind = variable.get("spec") or {}, str(variable.get("kind", ""))
    query = spec.get("query")
    if isinstance(query, Mapping):
        query = query.get("spec") or {}
        query = query.get("query") or query.get("__legacyStringValue") or query.get("expr") or spec.get("definition")
    return {**spec, "type": _KINDS.get(kind, kind), "query": query}
