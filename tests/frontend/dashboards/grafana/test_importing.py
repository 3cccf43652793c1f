"""What becomes of Grafana's dashboards: two of our own here, and a folder of others with ``--grafana FOLDER``."""

import time
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontend.dashboards import document, limits
from frontend.dashboards.drawing import drawn
from frontend.dashboards.grafana import expressions, importing
from frontend.dashboards.grafana.report import Fate, Imported
from frontend.dashboards.variables import AUTO, NoCatalogue, settle
from spm.errors import BadQuery, LimitExceeded, Refused

SAMPLES = Path(__file__).parent / "samples"
WELL_KNOWN, SHARE = 20, 0.9


def imported(name: str) -> Imported:
    return importing.read((SAMPLES / name).read_bytes())


def fates(result: Imported, what: str = "panel") -> dict[str, tuple[str, ...]]:
    return {each.title: (each.fate.value, *each.notes) for each in result.lines if each.what == what}


def test_each_panel_of_the_classic_schema_is_in_the_report() -> None:
    result = fates(imported("classic.json"))
    expected = {
        "CPU of $host": "changed: values in “percentunit” are multiplied by 100 and shown as percent; query B is "
        "switched off there, and left out",
        "Up": "imported",
        "More": "imported",
        "Shares": "changed: shares of a circle are drawn as bars; transformations are not made: organize",
        "Log": "left out: there are no logs here",
        "Notes": "imported",
        "Other source": "left out: query A is left out: it asks a data source of the kind “loki”",
        "Globe": "left out: the plug-in “acme-globe” draws it, and nothing here does",
    }
    said = {title: ": ".join([fate, "; ".join(notes)]).rstrip(": ") for title, (fate, *notes) in result.items()}
    broken = said.pop("No language")
    assert said == expected
    assert broken.startswith("left out: query A is left out: its expression is not understood: 1:")


def test_panels_of_the_classic_schema_are_ours() -> None:
    panels = {each.title: each for each in imported("classic.json").document.panels}
    cpu = panels["CPU of $host"]
    assert (cpu.kind, cpu.unit, cpu.x, cpu.w) == ("area", "percent", 0, 16)
    assert (cpu.queries[0].expr, cpu.queries[0].legend) == ("(rate(cpu[$__rate_interval])) * 100", "{{host}}")
    assert (panels["Up"].kind, panels["Up"].calculation) == ("stat", "avg")
    assert [(name, panels[name].y) for name in ("More", "Shares", "Notes")] == [
        ("More", 8),
        ("Shares", 9),
        ("Notes", 15),
    ]


def test_variables_of_the_classic_schema_are_ours() -> None:
    result = imported("classic.json")
    host, odd, every = result.document.variables
    assert (host.query, host.regex, host.multi, host.all) == ("label_values(up, host)", "/^web-(.*)/", True, True)
    assert every.query == f"{AUTO},1m,5m"
    assert odd.regex == ""
    said = fates(result, "variable")
    assert said["source"][0] == said["filters"][0] == Fate.LEFT_OUT
    assert said["odd"][1].startswith("it offers all values: the regular expression")


def test_v2_is_read_with_its_rows_and_grids() -> None:
    result = imported("v2.json")
    places = [(each.title, each.kind, each.x, each.y, each.w) for each in result.document.panels]
    assert places == [
        ("Traffic", "row", 0, 0, 24),
        ("Requests", "line", 0, 1, 24),
        ("Hosts", "row", 0, 7, 24),
        ("Memory", "gauge", 0, 8, 12),
        ("Nowhere", "table", 0, 16, 12),
    ]
    assert result.document.panels[3].queries[0].expr == '(memory{host="$host"}) * 1.04858e+06'
    assert fates(result)["Shared"][0] == Fate.LEFT_OUT
    assert [each.name for each in result.document.variables] == ["host"]


@pytest.mark.parametrize("name", ["classic.json", "v2.json"])
def test_what_is_imported_can_be_saved_exported_and_imported_again(name: str) -> None:
    result = imported(name).document
    text = orjson.dumps(result.as_dict())
    assert document.parse(text) == result
    again = importing.read(text)
    assert again.document == result
    assert again.counts == {"same": len(result.panels), "changed": 0, "left_out": 0}


def test_a_folder_of_well_known_dashboards_is_imported(request: pytest.FixtureRequest) -> None:
    folder = request.config.getoption("--grafana")
    if folder is None:
        pytest.skip("no --grafana FOLDER")
    every = {path.name: importing.read(path.read_bytes()) for path in sorted(folder.glob("*.json"))}
    shares = {}
    for name, result in every.items():
        panels = [each for each in result.lines if each.what == "panel"]
        assert document.check(result.document.as_dict()) == result.document, name
        assert all(each.notes for each in result.lines if each.is_left_out), name
        assert drawn(result.document, settle(result.document.variables, {}, NoCatalogue())), name
        shares[name] = 1 - result.count(Fate.LEFT_OUT) / len(panels)
    well = {name for name, share in shares.items() if share >= SHARE}
    assert len(well) >= WELL_KNOWN, shares


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"panels": 5}', '{"dashboard": []}', '{"panels": [5]}', '{"spec": {"elements": {"a": 1}}}'],
)
def test_what_is_no_dashboard_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        importing.read(text)


def test_a_file_that_is_too_large_is_refused() -> None:
    with pytest.raises(LimitExceeded, match="too large"):
        importing.read(" " * (limits.IMPORT_BYTES_MAX + 1))


def test_panels_beyond_the_bound_are_listed_and_not_read() -> None:
    panel = {"type": "text", "options": {"content": "x"}}
    result = importing.read(orjson.dumps({"panels": [panel] * (limits.PANELS_MAX + 2)}))
    assert (len(result.document.panels), result.counts["left_out"]) == (limits.PANELS_MAX, 2)


@pytest.mark.timed
@pytest.mark.parametrize(
    "spec",
    [
        {"elements": {}, "layout": {"kind": "RowsLayout", "spec": {"rows": [{"spec": {}}] * 20_000}}},
        {"elements": {str(number): {} for number in range(20_000)}},
    ],
    ids=["rows", "panels without a place"],
)
def test_an_import_takes_time_in_proportion_to_its_file(spec: Any) -> None:
    began_s = time.process_time()
    assert len(importing.read(orjson.dumps(spec)).lines) == 20_000
    assert time.process_time() - began_s < 10  # a walk over all panels for each takes minutes


VARIABLES = [
    {"type": "custom", "name": "a", "query": "1"},
    {"type": "custom", "name": "a", "query": "2"},
    {"type": "custom", "name": "b", "query": "1," * 3_000},
    {"type": "interval", "name": "c", "query": "1m", "current": {"value": "x" * 600}},
]
ROW = {"type": "row", "gridPos": {"y": 4_999}, "panels": [{"type": "text", "gridPos": {"y": y}} for y in (1, 100)]}


def test_whatever_is_reported_as_imported_can_be_saved() -> None:
    file = {"title": " ", "panels": [ROW, {"type": "row", "gridPos": {"y": 5_000}}], "templating": {"list": VARIABLES}}
    result = importing.read(orjson.dumps(file))
    document.check(result.document.as_dict())
    lines = [(each.title, each.is_left_out, *each.notes) for each in result.lines if each.what == "variable"]
    assert lines == [
        ("a", False),
        ("a", True, "another one has its name"),
        ("b", False, "only the first 4,096 signs of its query are kept"),
        ("c", False),
    ]


def test_a_document_of_ours_without_panels_keeps_its_variables() -> None:
    own = document.check({"title": "A", "variables": [{"name": "a", "kind": "text"}]})
    assert importing.read(orjson.dumps(own.as_dict())).document == own


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
KEYS = (
    "type",
    "title",
    "gridPos",
    "targets",
    "fieldConfig",
    "options",
    "panels",
    "repeat",
    "yaxes",
    "datasource",
    "transformations",
)
PANEL = st.dictionaries(st.sampled_from(KEYS), JSON, max_size=5)
NAMED = st.fixed_dictionaries(
    {"type": st.sampled_from(["graph", "text", "row", "stat"])},
    optional={"gridPos": JSON, "targets": JSON, "panels": JSON},
)


@given(
    st.lists(PANEL | NAMED, max_size=4), st.dictionaries(st.sampled_from(["rows", "templating", "tags", "title"]), JSON)
)
def test_any_json_is_imported_or_refused(panels: list[Any], others: dict[str, Any]) -> None:
    try:
        result = importing.read(orjson.dumps({**others, "panels": panels}))
    except (Refused, LimitExceeded):
        return
    document.check({**result.document.as_dict(), "title": "A"})


def test_nuls_of_an_import_are_left_out_and_backslashes_are_not() -> None:
    texts = {"title": "a\0b", "tags": ["\\u0000", "\\\0", "\0"]}
    result = importing.read(orjson.dumps({**texts, "panels": []}))
    assert (result.document.title, [*result.document.tags]) == ("ab", ["\\u0000", "\\", ""])


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("rate(x[${__rate_interval}])", "rate(x[$__rate_interval])"),
        ("rate(x[$__interval_msms])", "rate(x[$__interval])"),
        ("rate(x[${__range_s}s])", "rate(x[$__range])"),
    ],
)
def test_grafanas_names_of_ranges_become_ours(theirs: str, ours: str) -> None:
    assert expressions.rewrite(theirs) == ours


def test_a_name_of_grafanas_that_is_not_known_is_refused() -> None:
    with pytest.raises(BadQuery, match=r"\$__from is not known here"):
        expressions.rewrite("x > $__from")
