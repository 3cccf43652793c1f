"""Makes our variable of one of Grafana's, in the form of the classic schema, and says what changed. Pure."""

from collections.abc import Mapping
from typing import Any

from frontend.dashboards.document import VariableSpec
from frontend.dashboards.grafana import expressions
from frontend.dashboards.grafana.report import Line
from frontend.dashboards.limits import NAME_CHARS_MAX, REGEX_CHARS_MAX, TITLE_CHARS_MAX, VALUE_CHARS_MAX
from frontend.dashboards.variables import ALL, pick
from spm.errors import BadQuery
from spm.limits import QUERY_TEXT_CHARS_MAX

_KINDS = {"query": "query", "custom": "custom", "interval": "interval", "constant": "constant", "textbox": "text"}
_LEFT_OUT = {
    "datasource": "the app stands for every data source",
    "adhoc": "filters that are added to every query are not known here",
    "groupby": "groups that are added to every query are not known here",
    "switch": "switches are not known here",
}


def read_variable(variable: Mapping[str, Any]) -> tuple[VariableSpec | None, Line]:
    """Return our variable, or None if it is left out, and the line of the report."""
    theirs, name = str(variable.get("type", "")), str(variable.get("name", ""))
    kind = _KINDS.get(theirs)
    if kind is None or not _is_name(name):
        reason = _LEFT_OUT.get(theirs, f"variables of the kind “{theirs}” are not known here")
        return None, Line("variable", name, theirs, [reason], is_left_out=True)
    query, notes = _query_of(variable, kind)
    if len(query) > QUERY_TEXT_CHARS_MAX:
        notes = [*notes, f"only the first {QUERY_TEXT_CHARS_MAX:,} signs of its query are kept"]
    regex, more = _regex_of(variable)
    spec = VariableSpec(
        name=name,
        kind=kind,
        label=str(variable.get("label") or "")[:TITLE_CHARS_MAX],
        query=query[:QUERY_TEXT_CHARS_MAX],
        regex=regex,
        values=_values_of(variable, kind),
        multi=bool(variable.get("multi")),
        all=bool(variable.get("includeAll")),
        all_value=str(variable.get("allValue") or "")[:VALUE_CHARS_MAX],
        hidden=variable.get("hide") in (2, "hideVariable") or kind == "constant",
    )
    return spec, Line("variable", name, theirs, [*notes, *more])


def _is_name(name: str) -> bool:
    return name.isidentifier() and not name.startswith("__") and len(name) <= NAME_CHARS_MAX


def _regex_of(variable: Mapping[str, Any]) -> tuple[str, list[str]]:
    regex = str(variable.get("regex") or "")
    if len(regex) > REGEX_CHARS_MAX:
        return "", [f"its regular expression has more than {REGEX_CHARS_MAX} signs, and is left out"]
    try:
        pick(["any"], regex)
    except BadQuery as error:
        return "", [f"it offers all values: {error}"]
    return regex, []


def _query_of(variable: Mapping[str, Any], kind: str) -> tuple[str, list[str]]:
    given = variable.get("query")
    text = given.get("query") or given.get("expr") or "" if isinstance(given, Mapping) else given or ""
    text = str(text or variable.get("definition") or "").strip()
    if kind == "interval":
        return ",".join(expressions.automatic([each.strip() for each in text.split(",")])), []
    if kind != "query":
        return text, []
    try:
        text = expressions.rewrite(text)
    except BadQuery as error:
        return text, [f"its query may find nothing: {error}"]
    if not text.startswith(("label_values", "label_names", "metrics", "query_result")):
        return text, ["its query is no query of Prometheus' and finds nothing here"]
    return text, []


def _values_of(variable: Mapping[str, Any], kind: str) -> list[str]:
    """Return the values that were chosen when the dashboard was exported; other ones are found where it is used."""
    chosen = (variable.get("current") or {}).get("value")
    values = [str(each) for each in (chosen if isinstance(chosen, list) else [chosen]) if each not in (None, "")]
    if ALL in values:
        return [ALL]
    if kind == "interval":
        values = expressions.automatic(values)
    return [] if kind == "query" else [each[:VALUE_CHARS_MAX] for each in values[:50]]
