"""The query builder by REST: texts as parts, parts as texts, and refusals."""

from typing import Any

import pytest
from django.test import Client

ADDRESS = "/api/v1/query-builder"


def read(desk: Client, expr: str) -> Any:
    """What the builder shows of a text."""
    return desk.get(ADDRESS, {"expr": expr}).json()


def test_a_text_comes_as_parts_and_goes_back(desk: Client) -> None:
    text = 'topk by (host) (3, rate(net_bytes_recv{host=~"web-.*"}[$__rate_interval]))'
    answer = read(desk, text)
    assert answer["builder"]["filters"] == [{"name": "host", "op": "=~", "value": "web-.*"}]
    assert (answer["builder"]["parameter"], answer["reason"]) == (3.0, "")
    back = desk.post(ADDRESS, answer["builder"], content_type="application/json")
    assert back.json() == {"expr": text}


def test_a_text_that_cannot_be_shown_says_why(desk: Client) -> None:
    assert read(desk, "a / b")["builder"] is None
    assert read(desk, "a / b")["reason"].startswith("The builder cannot show this: it combines values")


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"metric": "a", "function": "rate"},
        {"metric": "a", "filters": [{"name": "b", "op": "=~", "value": "("}]},
        {"metric": "a", "aggregation": "topk", "parameter": "nan"},
    ],
)
def test_wrong_parts_are_refused_with_a_reason(desk: Client, parts: dict[str, Any]) -> None:
    answer = desk.post(ADDRESS, parts, content_type="application/json")
    assert answer.status_code == 400
    assert answer.json()


def test_a_text_that_is_no_promql_is_refused(desk: Client) -> None:
    answer = desk.get(ADDRESS, {"expr": "sum("})
    assert (answer.status_code, "parse error" in answer.json()["error"]) == (400, True)
