"""What a page draws of a document: expressions, repeated panels, texts."""

import json
import time
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontend.dashboards import drawing
from frontend.dashboards.drawing import drawn
from frontend.dashboards.limits import TEXT_CHARS_MAX, TITLE_CHARS_MAX
from spm.limits import QUERY_TEXT_CHARS_MAX
from tests.frontend.dashboards.documents import chosen, document


def test_a_panel_of_one_query_asks_it_as_it_is() -> None:
    (panel,) = drawn(
        document({"title": "CPU of $host", "queries": [{"expr": 'up{host="$host"}'}]}), [chosen("host", "a")]
    )
    assert (panel.title, panel.expr, panel.place) == ("CPU of a", 'up{host="a"}', "0 0 12 8")


def test_several_queries_of_a_panel_have_letters_for_names() -> None:
    queries = [{"expr": "up # all", "legend": "{{host}}"}, {"expr": "down", "legend": "down"}]
    (panel,) = drawn(document({"queries": queries}), [])
    assert json.loads(panel.queries_json) == [{"name": "A", "expr": "up # all"}, {"name": "B", "expr": "down"}]
    assert json.loads(panel.legends) == {"A": "{{host}}", "B": "down"}


def test_a_query_that_variables_make_too_long_is_said_to_be_missing() -> None:
    queries = [{"expr": "up"}, {"expr": 'up{host=~"$host"}'}]
    (panel,) = drawn(document({"queries": queries}), [chosen("host", *["a" * 500] * (QUERY_TEXT_CHARS_MAX // 500 + 1))])
    assert panel.problem == f"1 of 2 queries are longer than {QUERY_TEXT_CHARS_MAX:,} signs."
    assert [each["name"] for each in panel.queries] == ["A"]


def test_a_panel_without_a_query_says_so() -> None:
    (panel,) = drawn(document({"queries": [{"expr": " "}]}), [])
    assert (panel.expr, panel.problem) == ("", "It asks for nothing yet.")


def test_a_repeated_panel_is_drawn_for_each_value_and_pushes_down_what_is_below() -> None:
    panels = [
        {"repeat": "host", "title": "$host", "queries": [{"expr": 'up{host="$host"}'}], "w": 12},
        {"title": "beside", "x": 12, "w": 12},
        {"title": "below", "y": 8},
    ]
    panels_drawn = drawn(document(*panels), [chosen("host", "a", "b", "c")])
    assert [(each.title, each.place) for each in panels_drawn] == [
        ("a", "0 0 12 8"),
        ("b", "12 0 12 8"),
        ("c", "0 8 12 8"),
        ("beside", "12 8 12 8"),
        ("below", "0 16 12 8"),
    ]
    assert panels_drawn[2].expr == 'up{host="c"}'


PLACES = st.tuples(st.integers(0, 23), st.integers(1, 24), st.integers(1, 9), st.booleans())


@given(st.lists(PLACES, max_size=12), st.integers(1, 7))
def test_no_panel_covers_another_however_often_they_are_repeated(
    places: list[tuple[int, int, int, bool]], count: int
) -> None:
    """Panels stand below each other at first, in a narrow and a wide page alike."""
    panels, y = list[dict[str, Any]](), 0
    for x, w, h, is_repeated in places:
        panels.append({"x": min(x, 24 - w), "y": y, "w": w, "h": h, "repeat": "host" if is_repeated else ""})
        y += h if w % 2 else 0  # others may stand beside it
    cells: set[tuple[int, int]] = set()
    for each in drawn(document(*panels), [chosen("host", *"abcdefg"[:count])]):
        x, y, w, h = map(int, each.place.split())
        own = {(column, row) for column in range(x, x + w) for row in range(y, y + h)}
        assert x + w <= 24
        assert not own & cells
        cells |= own


def test_a_page_has_a_bound_of_panels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "DRAWN_MAX", 5)
    every = document(*({"repeat": "host", "y": at * 8} for at in range(10)))
    assert len(drawn(every, [chosen("host", "a", "b", "c")])) == 5


MANY = chosen("a", *(str(number) for number in range(1_000)))


def test_values_in_place_of_short_names_have_a_bound() -> None:
    began_s = time.process_time()
    queries = [{"expr": "$a" * 2_000, "legend": "$a" * 100}] * 20
    every = document(
        *({"title": "$a" * 100, "queries": queries} for _ in range(9)), {"kind": "text", "text": "$a" * 1_000}
    )
    *panels, text = drawn(every, [MANY])
    assert {len(each.title) for each in panels} == {TITLE_CHARS_MAX + 1}
    assert panels[0].problem == f"20 of 20 queries are longer than {QUERY_TEXT_CHARS_MAX:,} signs."
    assert len(text.html) < 2 * TEXT_CHARS_MAX
    assert time.process_time() - began_s < 5  # of values without a bound it takes minutes


@pytest.mark.timed
def test_tables_have_a_bound_of_cells_and_a_page_one_of_texts() -> None:
    began_s = time.process_time()
    table = "|a" * 312 + "|\n" + "|-" * 312 + "|\n" + "x\n" * 1_875
    small = "|a|b|\n|-|-|\n|1|2|"
    panels = drawn(
        document(*({"kind": "text", "text": text, "y": at} for at, text in enumerate([small, *[table] * 70]))), []
    )
    assert "<td>1</td>" in panels[0].html
    assert "<td>" not in panels[1].html
    assert panels[-1].problem == "The page has no room for it: too much is above."
    assert time.process_time() - began_s < 20  # each such table takes seconds


def test_a_page_has_a_bound_of_queries_with_copies() -> None:
    expr = "a" * 4_000
    every = document(*({"repeat": "host", "y": at * 8, "queries": [{"expr": expr}] * 26} for at in range(3)))
    panels = drawn(every, [chosen("host", *"abcdefgh")])
    assert [bool(each.problem) for each in panels] == [False] * 10 + [True] * 14


class Tags(HTMLParser):
    """The tags and links of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(" ".join([tag, *(value or "" for _, value in attrs)]))


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("**hello** [docs](https://a.example)", ["p", "strong", "a https://a.example"]),
        ("<script>alert(1)</script>", []),
        ("<img src=x onerror=alert(1)>", []),
        ("![x](https://a.example/track.png)", ["p", "a https://a.example/track.png"]),
        ("[x](javascript:alert(1))", ["p"]),
        ("[x](data:text/html;base64,AAAA)", ["p"]),
        ("$x", ["p"]),
    ],
)
def test_a_text_brings_no_html_no_script_and_nothing_of_foreign_sites(text: str, tags: list[str]) -> None:
    hostile = chosen("x", '<b onclick="a()">[y](https://evil.example)', kind="text")
    (panel,) = drawn(document({"kind": "text", "text": text}), [hostile])
    assert [each for each in Tags(panel.html).tags if each != "p" or "p" in tags] == tags
