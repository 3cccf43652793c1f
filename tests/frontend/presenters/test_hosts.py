"""The table of hosts, from what the database and the engine said; and its small drawings."""

import pytest

from frontend.presenters.charts import Steps, fill_variables
from frontend.presenters.hosts import NO_POINTS, Hosts, SeriesPoints, host_rows
from frontend.presenters.panels import host_panels, quote
from frontend.presenters.sparkline import HEIGHT, WIDTH, draw_sparkline
from frontend.templatetags.site_text import age, percent
from spm.query.promql.planning.planner import parse

NOW = 1_700_000_000_000
MINUTE = 60_000


def points(*values: float | None, end: int = NOW) -> SeriesPoints:
    """Values one minute apart, the last one at ``end``."""
    return SeriesPoints(list(values), [end - MINUTE * back for back in reversed(range(len(values)))])


def test_a_host_that_pushes_and_one_known_by_its_label_are_both_there() -> None:
    rows = host_rows({"pushes": NOW}, {"labelled": points(1.0)}, {}, NOW)
    assert [row.name for row in rows] == ["labelled", "pushes"]


def test_hosts_in_trouble_stand_first() -> None:
    last_seen = {"a": NOW, "b": NOW - 2 * MINUTE, "c": NOW - 30 * MINUTE, "d": NOW}
    assert [(row.name, row.state) for row in host_rows(last_seen, {}, {}, NOW)] == [
        ("b", "late"),
        ("c", "gone"),
        ("a", "up"),
        ("d", "up"),
    ]


def test_the_newest_sign_of_life_counts() -> None:
    [row] = host_rows({"a": NOW - 30 * MINUTE}, {"a": points(5.0, end=NOW - 30_000)}, {}, NOW)
    assert (row.state, row.age_ms) == ("up", 30_000)


def test_a_step_that_lies_ahead_is_no_negative_age() -> None:
    [row] = host_rows({}, {"a": points(5.0, end=NOW + 20_000)}, {}, NOW)
    assert row.age_ms == 0


@pytest.mark.parametrize(
    ("values", "now"),
    [((1.0, 2.0), 2.0), ((1.0, None), 1.0), ((1.0, None, None), None), ((), None), ((0.0,), 0.0)],
    ids=["newest", "one step late", "silent", "nothing", "zero is a value"],
)
def test_the_current_value_is_never_an_old_one(values: tuple[float | None, ...], now: float | None) -> None:
    assert points(*values).latest == now


def test_the_sums_count_by_state_and_name_the_busiest() -> None:
    hosts = Hosts(host_rows({"a": NOW, "b": NOW, "c": 1}, {"a": points(3.0), "b": points(40.0)}, {}, NOW))
    assert (hosts.up, hosts.late, hosts.gone) == (2, 0, 1)
    assert hosts.busiest is not None
    assert hosts.busiest.name == "b"


def test_without_any_value_there_is_no_busiest() -> None:
    assert Hosts(host_rows({"a": NOW}, {}, {}, NOW)).busiest is None


def test_a_sparkline_reaches_from_edge_to_edge_and_is_cut_by_a_gap() -> None:
    unbroken, cut = draw_sparkline([0.0, 50.0, 100.0], 100), draw_sparkline([1.0, 2.0, None, 3.0, 4.0], 100)
    assert unbroken.line.startswith("M0.0,")
    assert f"L{WIDTH:.1f}," in unbroken.line
    assert unbroken.line.count("M") == 1
    assert cut.line.count("M") == 2


@pytest.mark.parametrize("values", [[], [None, None], [1.0], [None, 1.0, None]])
def test_a_sparkline_of_no_two_neighbours_is_empty(values: list[float | None]) -> None:
    assert draw_sparkline(values, 100).line == ""


@pytest.mark.parametrize("value", [-5.0, 0.0, 100.0, 1e9])
def test_a_sparkline_stays_inside_its_box(value: float) -> None:
    heights = [float(point.split(",")[1]) for point in draw_sparkline([value, value], 100).line.lstrip("M").split(" L")]
    assert all(0 <= height <= HEIGHT for height in heights)


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


def test_nothing_reads_as_nothing() -> None:
    assert (NO_POINTS.latest, NO_POINTS.last_ms) == (None, None)
