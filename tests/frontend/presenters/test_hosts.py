"""The table of hosts, from what the database and the engine said; and its small drawings."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontend.presenters.charts import Steps, fill_variables
from frontend.presenters.hosts.filters import quote_value, read_filter
from frontend.presenters.hosts.table import (
    ROWS,
    HostChoice,
    HostNumbers,
    HostRow,
    group_rows,
    grouping_labels,
    is_host,
    list_rows,
    select_page,
)
from frontend.presenters.panels import host_panels, quote
from frontend.presenters.sparkline import HEIGHT, WIDTH, draw_sparkline
from frontend.templatetags.site_text import age, percent
from spm.query.promql.planning.planner import parse

NOW = 1_700_000_000_000
MINUTE = 60_000


def names_of(seen_ms: dict[str, int], numbers: HostNumbers | None = None, **firing: int) -> list[tuple[str, str]]:
    """The rows' names and states, in order."""
    seen = {name: (ms, None) for name, ms in seen_ms.items()}
    return [(row.name, row.state) for row in list_rows(seen, numbers or HostNumbers(), firing, NOW)]


def test_a_host_that_pushes_and_one_known_by_its_label_are_both_there() -> None:
    assert names_of({"pushes": NOW}, HostNumbers({"labelled": NOW})) == [("labelled", "up"), ("pushes", "up")]


@pytest.mark.parametrize(
    ("source", "counts"), [("web-1", True), ("token-1", False), ("token-web", True), ("spm", False)]
)
def test_a_source_that_a_token_or_the_system_names_is_no_host(source: str, counts: bool) -> None:
    assert is_host(source) == counts


def test_hosts_in_trouble_stand_first() -> None:
    last_seen = {"a": NOW, "b": NOW - 2 * MINUTE, "c": NOW - 30 * MINUTE, "d": NOW, "e": NOW}
    assert names_of(last_seen, e=2) == [("c", "gone"), ("b", "late"), ("e", "up"), ("a", "up"), ("d", "up")]


def test_the_newest_sign_of_life_counts() -> None:
    [row] = list_rows({"a": (NOW - 30 * MINUTE, None)}, HostNumbers({"a": NOW - 30_000}), {}, NOW)
    assert (row.state, row.age_ms) == ("up", 30_000)


def test_a_sample_that_lies_ahead_is_no_negative_age() -> None:
    [row] = list_rows({}, HostNumbers({"a": NOW + 20_000}), {}, NOW)
    assert row.age_ms == 0


WEB: dict[str, tuple[int, int | None]] = {f"web-{number:03}": (NOW, None) for number in range(120)}
FLEET = list_rows(WEB | {"db": (1, None)}, HostNumbers(), {}, NOW)


@pytest.mark.parametrize(
    ("chosen", "first", "count", "after", "matching"),
    [
        (HostChoice(), "db", ROWS, "web-048", 121),
        (HostChoice(after="web-048"), "web-049", ROWS, "web-098", 121),
        (HostChoice(after="web-098"), "web-099", 21, "", 121),
        (HostChoice(read_filter("WEB-01")), "web-010", 10, "", 10),
        (HostChoice(read_filter("state=down")), "db", 1, "", 1),
        (HostChoice(after="left meanwhile"), "db", ROWS, "web-048", 121),
        (HostChoice(read_filter("none")), None, 0, "", 0),
        (HostChoice(read_filter("rack=7 -1")), None, 0, "", 0),
        (HostChoice(most=500), "db", 121, "", 121),
    ],
    ids=["first page", "second", "last", "by name", "by state", "a gone cursor", "no match", "no such label", "map"],
)
def test_a_page_has_few_rows_and_leads_to_the_next(
    chosen: HostChoice, first: str | None, count: int, after: str, matching: int
) -> None:
    page, end, total = select_page(FLEET, chosen)
    assert (page[0].name if page else None, len(page), end, total) == (first, count, after, matching)


MIXED = list_rows(
    dict.fromkeys(("web-1", "web-2", "db-1", "db-2"), (NOW, None)),
    HostNumbers(
        cpu={"web-1": 91.5, "web-2": 20, "db-1": 80},
        load={"db-1": 0.0},
        labels={
            "web-1": {"role": "web", "rack": "7"},
            "web-2": {"role": "web", "rack": "8"},
            "db-1": {"role": "db", "rack": "7"},
        },
    ),
    {"db-2": 3},
    NOW,
)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ["db-2", "db-1", "web-1", "web-2"]),
        ("web", ["web-1", "web-2"]),
        ("w 2", ["web-2"]),
        ("role=web", ["web-1", "web-2"]),
        ('role="db"', ["db-1"]),
        ("role!=web", ["db-2", "db-1"]),
        ("cpu>80", ["web-1"]),
        ("cpu>=80", ["db-1", "web-1"]),
        ("CPU<50", ["web-2"]),
        ("load<=0", ["db-1"]),
        ("alerts>0", ["db-2"]),
        ("rack=7 cpu>85%", ["web-1"]),
        ("state=up name!=db-2 db", ["db-1"]),
        ("state=late", []),
        ("disk>0", []),
        ("cpu>many", []),
    ],
)
def test_a_filter_chooses_hosts_by_name_label_state_and_number(text: str, names: list[str]) -> None:
    page, _, _ = select_page(MIXED, HostChoice(read_filter(text)))
    assert [row.name for row in page] == names


@pytest.mark.parametrize(
    ("sort", "names"),
    [
        ("name", ["db-1", "db-2", "web-1", "web-2"]),
        ("cpu", ["web-1", "db-1", "web-2", "db-2"]),
        ("load", ["db-1", "db-2", "web-1", "web-2"]),
        ("alerts", ["db-2", "db-1", "web-1", "web-2"]),
    ],
)
def test_the_highest_number_stands_first_and_what_has_none_last(sort: str, names: list[str]) -> None:
    page, _, _ = select_page(MIXED, HostChoice(sort=sort))
    assert [row.name for row in page] == names


def test_hosts_are_grouped_by_labels_that_many_have_and_that_name_no_host() -> None:
    labels = {f"h{number}": {"role": "db" if number % 2 else "web", "serial": str(number)} for number in range(60)}
    rows = list_rows(dict.fromkeys(labels, (NOW, None)), HostNumbers(labels=labels), {}, NOW)
    assert grouping_labels(rows) == ["role"]
    assert grouping_labels(MIXED) == ["role", "rack"]
    assert [(group.value, len(group.rows)) for group in group_rows(MIXED, "role")] == [("db", 1), ("web", 2), ("", 1)]


def places(path: str) -> list[tuple[int, int]]:
    """The points of a path of relative moves."""
    moves = [(int(x), int(y)) for x, y in re.findall(r"(-?\d+) ?(-?\d+)", path)]
    return [(sum(x for x, _ in moves[: n + 1]), sum(y for _, y in moves[: n + 1])) for n in range(len(moves))]


def test_a_sparkline_reaches_from_edge_to_edge_and_is_cut_by_a_gap() -> None:
    unbroken, cut = draw_sparkline([0.0, 50.0, 100.0]), draw_sparkline([1.0, 2.0, None, 3.0, 4.0])
    assert places(unbroken.path) == [(0, HEIGHT - 1), (WIDTH // 2, HEIGHT // 2), (WIDTH, 1)]
    assert (unbroken.path.count("m"), cut.path.count("m")) == (1, 2)
    assert (cut.low, cut.high) == (1.0, 4.0)


NOT_FINITE = [float("nan"), float("inf"), float("-inf")]


def test_what_is_not_finite_interrupts_a_sparkline() -> None:
    assert draw_sparkline([1.0, 2.0, *NOT_FINITE, 3.0]) == draw_sparkline([1.0, 2.0, None, None, None, 3.0])
    assert "n" not in draw_sparkline([-1e308, 1e308, 1.7e308]).path


@pytest.mark.parametrize(("cpu", "level"), [(None, 0), (-5.0, 0), (0.0, 0), (50.0, 3), (100.0, 6), (float("inf"), 6)])
def test_the_map_has_a_colour_for_every_number(cpu: float | None, level: int) -> None:
    assert HostRow("a", "up", 0, cpu_now=cpu).level == level


@pytest.mark.parametrize("values", [[], [None, None], NOT_FINITE])
def test_a_sparkline_of_nothing_is_empty(values: list[float | None]) -> None:
    assert draw_sparkline(values).path == ""


def test_a_small_wobble_of_a_quiet_host_stays_small() -> None:
    heights = [y for _, y in places(draw_sparkline([50.0, 50.4] * 10).path)]
    assert max(heights) - min(heights) <= HEIGHT / 8


@pytest.mark.parametrize("value", [-5.0, 0.0, 100.0, 1e9])
def test_a_sparkline_stays_inside_its_box(value: float) -> None:
    assert all(0 <= y <= HEIGHT for _, y in places(draw_sparkline([value, value / 2, value]).path))


@pytest.mark.parametrize("host", ["web-1", 'a"b', "back\\slash", "ünï", "line\nbreak", "$window{}"])
def test_every_panel_of_any_host_name_can_be_parsed(host: str) -> None:
    for panel in host_panels(host):
        parse(fill_variables(panel.expr, Steps(0, MINUTE, MINUTE), MINUTE))
        assert quote(host) in panel.expr


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "just now"),
        (15_000, "15 s ago"),
        (90_000, "90 s ago"),
        (120_000, "2 min ago"),
        (7_200_000, "2 h ago"),
        (3_600_000, "1 h ago"),
        (86_400_000 * 3, "3 d ago"),
    ],
)
def test_ages_read_as_people_say_them(ms: int, text: str) -> None:
    assert age(ms) == text


@pytest.mark.parametrize(("value", "text"), [(None, "–"), (0.0, "0.0 %"), (3.14, "3.1 %"), (42.4, "42 %")])
def test_percents_have_as_many_digits_as_help(value: float | None, text: str) -> None:
    assert percent(value) == text


@pytest.mark.parametrize(
    ("text", "parts", "labels"),
    [
        ('rack="row 7" web', ("web",), (("rack", "=", "row 7"),)),
        ('"my host" rack!="a \\"b\\""', ("my host",), (("rack", "!=", 'a "b"'),)),
        ('rack="row 7', (), (("rack", "=", "row 7"),)),
        ('rack="" state="down"', (), (("rack", "=", ""), ("state", "=", "gone"))),
        ("rack=a\\b", (), (("rack", "=", "a\\b"),)),
    ],
    ids=["spaces", "quotes", "a quote without an end", "nothing", "a backslash alone"],
)
def test_a_filter_of_hosts_holds_what_stands_in_quotes_together(text: str, parts: Any, labels: Any) -> None:
    assert (read_filter(text).parts, read_filter(text).labels) == (parts, labels)
    assert read_filter(read_filter(text).text) == read_filter(text)


@given(st.text())
def test_a_value_written_for_a_filter_is_read_back(value: str) -> None:
    assert read_filter(f"web role={quote_value(value)} x").labels == (("role", "=", value),)
