"""Makes our panel of one of Grafana's, in the form of the classic schema, and says what changed. Pure.

A panel is left out if nothing can show it here, and only then; each thing that looks different is a note. Enter by
``read_panel``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from frontend.dashboards.document import PanelQuery, PanelSpec
from frontend.dashboards.grafana import expressions, units
from frontend.dashboards.grafana.report import Line
from frontend.dashboards.limits import (
    COLUMNS,
    HEIGHT_MAX,
    NAME_CHARS_MAX,
    QUERIES_MAX,
    ROWS_MAX,
    TEXT_CHARS_MAX,
    TITLE_CHARS_MAX,
)
from spm.errors import BadQuery
from spm.limits import QUERY_TEXT_CHARS_MAX

Json = Mapping[str, Any]
_SAME = {
    "timeseries": "line",
    "graph": "line",
    "stat": "stat",
    "singlestat": "stat",
    "gauge": "gauge",
    "bargauge": "toplist",
    "table": "table",
    "table-old": "table",
    "text": "text",
    "heatmap": "heatmap",
    "state-timeline": "states",
    "status-history": "states",
}
_NEAR = {
    "piechart": ("toplist", "shares of a circle are drawn as bars"),
    "grafana-piechart-panel": ("toplist", "shares of a circle are drawn as bars"),
    "barchart": ("toplist", "bars of categories are drawn as a top list"),
    "grafana-polystat-panel": ("toplist", "hexagons are drawn as a top list"),
    "vonage-status-panel": ("toplist", "states are drawn as a top list"),
    "trend": ("line", "a trend is drawn over time"),
    "histogram": ("line", "a histogram is drawn as lines over time"),
}
_LEFT_OUT = {
    "alertlist": "lists of alerts stand on the page of alerts",
    "dashlist": "links to other dashboards are not imported",
    "news": "news of other sites are not shown",
    "logs": "there are no logs here",
    "traces": "there are no traces here",
    "nodeGraph": "there are no traces here",
    "geomap": "there are no maps here",
    "annolist": "events stand on the charts",
    "welcome": "it belongs to Grafana's own start page",
    "gettingstarted": "it belongs to Grafana's own start page",
}
_CALCULATIONS = {
    **dict.fromkeys(("lastNotNull", "last", "current"), "last"),
    **dict.fromkeys(("mean", "avg"), "avg"),
    **dict.fromkeys(("sum", "total"), "sum"),
    **dict.fromkeys(("first", "firstNotNull"), "first"),
    "min": "min",
    "max": "max",
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a panel stands on the grid."""

    x: int
    y: int
    w: int
    h: int


def read_panel(panel: Json, number: int, place: Place) -> tuple[PanelSpec | None, Line]:
    """Return our panel, or None if it is left out, and the line of the report."""
    theirs, title = str(panel.get("type", "")), str(panel.get("title") or "")[:TITLE_CHARS_MAX]
    kind, notes = _kind_of(panel, theirs)
    if not kind:
        return None, Line("panel", title, theirs, notes, is_left_out=True)
    common: dict[str, Any] = {
        "number": number,
        "title": title,
        "description": str(panel.get("description") or "")[:TEXT_CHARS_MAX],
        **_bounded(place),
        "repeat": str(panel.get("repeat") or "")[:NAME_CHARS_MAX],
    }
    if kind == "text":
        text, more = _text_of(panel)
        return PanelSpec(**common, kind="text", text=text), Line("panel", title, theirs, [*notes, *more])
    unit, factor, said = units.unit_of(_unit_name(panel))
    queries, lost = _queries(panel, factor)
    if not queries:
        reason = "; ".join(lost) or "it asks for nothing"
        return None, Line("panel", title, theirs, [reason], is_left_out=True)
    calculation, more = _calculation(panel, kind)
    all_notes = [*notes, *([said] if said else []), *more, *lost, *_unsupported(panel)]
    spec = PanelSpec(**common, kind=kind, unit=unit, calculation=calculation, queries=queries)
    return spec, Line("panel", title, theirs, all_notes)


def _bounded(place: Place) -> dict[str, int]:
    width = min(max(place.w, 1), COLUMNS)
    return {
        "x": min(max(place.x, 0), COLUMNS - width),
        "y": min(max(place.y, 0), ROWS_MAX),
        "w": width,
        "h": min(max(place.h, 1), HEIGHT_MAX),
    }


def _kind_of(panel: Json, theirs: str) -> tuple[str, list[str]]:
    if "libraryPanel" in panel and not panel.get("targets"):
        return "", ["it is a library panel, which the file only names; export it with its panels"]
    if theirs in _SAME:
        return _drawn_as(panel, _SAME[theirs]), []
    if theirs in _NEAR:
        kind, note = _NEAR[theirs]
        return kind, [note]
    if theirs in _LEFT_OUT:
        return "", [_LEFT_OUT[theirs]]
    return "", [f"the plug-in “{theirs}” draws it, and nothing here does" if theirs else "it does not say what it is"]


def _drawn_as(panel: Json, kind: str) -> str:
    """Tell bars and stacked areas from lines."""
    if kind != "line":
        return kind
    custom = _defaults(panel).get("custom") or {}
    stacking = (custom.get("stacking") or {}).get("mode", "none")
    if panel.get("stack") or stacking in ("normal", "percent"):
        return "area"
    return "bars" if custom.get("drawStyle") == "bars" or (panel.get("bars") and not panel.get("lines")) else "line"


def _defaults(panel: Json) -> Json:
    return (panel.get("fieldConfig") or {}).get("defaults") or {}


def _unit_name(panel: Json) -> str:
    axes = panel.get("yaxes") or [{}]
    styles = panel.get("styles") or []
    own = [panel.get("format")] if panel.get("type") == "singlestat" else [(axes[0] or {}).get("format")]
    return str(_defaults(panel).get("unit") or next(filter(None, own), "") or (styles and styles[-1].get("unit")) or "")


def _queries(panel: Json, factor: float) -> tuple[list[PanelQuery], list[str]]:
    """Return the queries that can be asked here, and why others cannot."""
    queries: list[PanelQuery] = []
    lost: list[str] = []
    for target in panel.get("targets") or []:
        name = f"query {target.get('refId') or len(queries) + len(lost) + 1}"
        if target.get("hide"):
            lost.append(f"{name} is switched off there, and left out")
            continue
        if len(queries) + len(lost) >= 2 * QUERIES_MAX or len(queries) >= QUERIES_MAX:
            lost.append(f"{name} and all after it are left out: a panel has at most {QUERIES_MAX}")
            break
        try:
            expr = _expression(target)
        except BadQuery as error:
            lost.append(f"{name} is left out: {error}")
            continue
        legend = str(target.get("legendFormat") or "")
        queries.append(
            PanelQuery(expressions.scaled(expr, factor), "" if legend == "__auto" else legend[:TITLE_CHARS_MAX])
        )
    return queries, lost


def _expression(target: Json) -> str:
    source = target.get("datasource")
    kind = source.get("type", "prometheus") if isinstance(source, Mapping) else "prometheus"
    if kind not in ("prometheus", "datasource", "", "mixed") and not str(kind).startswith(("$", "-")):
        raise BadQuery(f"it asks a data source of the kind “{kind}”")
    text = target.get("expr")
    if not isinstance(text, str) or not text.strip():
        raise BadQuery("it has no PromQL expression")
    expr = expressions.rewrite(text)
    if len(expr) > QUERY_TEXT_CHARS_MAX - 40:
        raise BadQuery(f"its expression has more than {QUERY_TEXT_CHARS_MAX - 40} signs")
    reason = expressions.check(expr)
    if reason:
        raise BadQuery(f"its expression is not understood: {reason}")
    return expr


def _calculation(panel: Json, kind: str) -> tuple[str, list[str]]:
    if kind not in ("stat", "gauge", "toplist", "table"):
        return "last", []
    reduce = (panel.get("options") or {}).get("reduceOptions") or {}
    theirs = str((reduce.get("calcs") or [panel.get("valueName") or "last"])[0])
    known = _CALCULATIONS.get(theirs)
    return known or "last", [] if known else [f"the calculation “{theirs}” is not known here: the last value is shown"]


def _unsupported(panel: Json) -> Sequence[str]:
    """Name what is not kept of a panel that is."""
    notes = []
    transformations = [str(each.get("id")) for each in panel.get("transformations") or [] if not each.get("disabled")]
    if transformations:
        notes.append(f"transformations are not made: {', '.join(dict.fromkeys(transformations))}")
    if panel.get("alert"):
        notes.append("its alert is not imported: make a rule of the panel")
    if (_defaults(panel).get("mappings") or panel.get("mappings") or panel.get("valueMaps")) and panel.get(
        "type"
    ) != "graph":
        notes.append("values are shown as numbers, not by their mappings")
    overrides = [each for each in (panel.get("fieldConfig") or {}).get("overrides") or [] if each.get("properties")]
    if overrides or panel.get("seriesOverrides"):
        notes.append("series have our colours and one axis: overrides are not kept")
    if panel.get("timeFrom") or panel.get("timeShift"):
        notes.append("it has the range of the page, not one of its own")
    return notes


def _text_of(panel: Json) -> tuple[str, list[str]]:
    options = panel.get("options") or {}
    text, mode = str(options.get("content") or panel.get("content") or ""), options.get("mode") or panel.get("mode")
    notes = ["HTML is shown as text: only Markdown is drawn"] if mode == "html" else []
    if len(text) > TEXT_CHARS_MAX:
        notes.append(f"only the first {TEXT_CHARS_MAX:,} signs are kept")
    return text[:TEXT_CHARS_MAX], notes
