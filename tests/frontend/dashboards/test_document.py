"""What a document of a dashboard may hold, and what is said of one that may not be."""

from typing import Any

import orjson
import pytest

from frontend.dashboards import limits
from frontend.dashboards.document import check, from_dict, parse
from spm.errors import LimitExceeded, Refused
from tests.frontend.dashboards.documents import document


def test_a_document_that_is_stored_comes_back_equal() -> None:
    full = document(
        {"kind": "stat", "queries": [{"expr": "up", "legend": "{{host}}"}], "repeat": "host"},
        {"kind": "text", "text": "**hello**", "x": 12},
        variables=[{"name": "host", "query": "label_values(up, host)", "multi": True, "values": ["a"]}],
        tags=["shop"],
    )
    assert from_dict(orjson.loads(orjson.dumps(full.as_dict()))) == full
    assert parse(orjson.dumps(full.as_dict())) == full


def deep(count: int) -> list[Any]:
    """Lists within lists, deeper than can be written."""
    value: list[Any] = []
    for _ in range(count):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([], "the dashboard is no JSON object"),
        ({"panels": []}, "a dashboard needs a title"),
        ({"title": "A", "panels": {}}, "panels of the dashboard is no list"),
        ({"title": "A", "panels": [{"number": 1, "kind": "pie"}]}, r"kind of panels\[0\] of the dashboard is unknown"),
        ({"title": "A", "panels": [{"number": 1, "x": 20, "w": 12}]}, "x of .* out of range"),
        ({"title": "A", "panels": [{"number": True}]}, "number of .* out of range"),
        ({"title": "A", "panels": [{}]}, "number of .* out of range"),
        ({"title": "A", "panels": [{"number": 1}, {"number": 1}]}, "two panels have one number"),
        ({"title": "A", "panels": [{"number": 1, "title": 5}]}, "title of .* is no text"),
        ({"title": "A\0", "panels": []}, "holds a NUL"),
        ({"title": "A", "tags": ["\0"]}, "holds a NUL"),
        ({"title": "A\ud800", "panels": []}, "holds half a sign"),
        ({"title": "A", "panels": [{"number": 1, "kind": "\ud800"}]}, r"kind of .* got '\\ud800'"),
        ({"title": "A", "panels": [{"number": 1, "kind": "x" * 5_000}]}, "got 'x{20,100}…;"),
        ({"title": "A", "panels": [{"number": 10**4_000}]}, "got 10{20,100}…;"),
        ({"title": "A", "panels": [{"number": deep(3_000)}]}, "got list;"),
        ({"title": "A", "tags": [{}]}, "tags of the dashboard is no text"),
        ({"title": "A", "variables": [{"name": "a b"}]}, "has no name"),
        ({"title": "A", "variables": [{"name": "__range"}]}, "has no name"),
        ({"title": "A", "variables": [{"name": "a"}, {"name": "a"}]}, "two variables have one name; got a"),
        ({"title": "A", "variables": [{"name": "a", "multi": 1}]}, "neither true nor false"),
    ],
)
def test_a_mistake_is_named_with_its_place(value: Any, said: str) -> None:
    with pytest.raises(Refused, match=said):
        check(value)


@pytest.mark.parametrize("text", ["", "{", "NaN", '{"title": "\\ud800"}', "[" * 5_000])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="no JSON"):
        parse(text)


def over(name: str, count: int, each: Any) -> dict[str, Any]:
    return {"title": "A", name: [{**each, "number": at} if name == "panels" else each for at in range(1, count + 1)]}


@pytest.mark.parametrize(
    "value",
    [
        over("panels", limits.PANELS_MAX + 1, {}),
        over("variables", limits.VARIABLES_MAX + 1, {"name": "a"}),
        over("tags", limits.TAGS_MAX + 1, "t"),
        over("panels", 1, {"queries": [{"expr": "up"}] * (limits.QUERIES_MAX + 1)}),
        over("panels", 1, {"text": "x" * (limits.TEXT_CHARS_MAX + 1)}),
        over("variables", 1, {"name": "a", "regex": "x" * (limits.REGEX_CHARS_MAX + 1)}),
        {"title": "x" * (limits.TITLE_CHARS_MAX + 1)},
    ],
    ids=["panels", "variables", "tags", "queries", "text", "regular expression", "title"],
)
def test_one_more_than_a_bound_is_refused(value: Any) -> None:
    with pytest.raises(LimitExceeded):
        check(value)


def test_a_text_that_is_too_long_is_not_parsed() -> None:
    with pytest.raises(LimitExceeded, match="too large"):
        parse("x" * (limits.IMPORT_BYTES_MAX + 1))
