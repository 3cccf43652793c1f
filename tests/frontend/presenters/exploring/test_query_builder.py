"""The query builder and its texts: there and back without loss, and a reason where a text says more."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontend.presenters.charts import VARIABLES
from frontend.presenters.exploring.query_builder import (
    AGGREGATIONS,
    FUNCTIONS,
    BuilderQuery,
    NotShown,
    read_query,
    write_query,
)
from spm.errors import BadQuery
from spm.query.request.batches import Matcher

_NAMES = st.one_of(
    st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,8}", fullmatch=True),
    st.sampled_from(
        ["sum", "by", "without", "inf", "NaN", "bool", "offset", "on", "$window", "a b", 'q"uote', "é", "#"]
    ),
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=6),
)
_LABELS = _NAMES.filter(lambda name: name != "__name__")
_NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
_FILTERS = st.builds(
    Matcher,
    _LABELS,
    st.sampled_from(["=", "!="]),
    st.one_of(st.text(st.characters(codec="utf-8"), max_size=6), st.sampled_from(["$__interval", "\\", '"', "a\nb"])),
)
_REGEXPS = st.builds(Matcher, _LABELS, st.sampled_from(["=~", "!~"]), st.sampled_from(["", "a.*", "web-(1|2)", "\\d+"]))


@st.composite
def _queries(draw: st.DrawFn) -> BuilderQuery:
    function, aggregation = draw(st.sampled_from(["", *FUNCTIONS])), draw(st.sampled_from(["", *AGGREGATIONS]))
    window = draw(st.sampled_from([*VARIABLES, "5m", "1h30m", "1d", "250ms"])) if function else ""
    grouping = draw(st.sampled_from(["", "by", "without"])) if aggregation else ""
    labels = draw(st.lists(_LABELS, min_size=grouping == "by", max_size=3)) if grouping else []
    return BuilderQuery(
        draw(_NAMES),
        tuple(draw(st.lists(_FILTERS | _REGEXPS, max_size=3))),
        function,
        window,
        draw(_NUMBERS) if function == "quantile_over_time" else None,
        aggregation,
        draw(_NUMBERS) if aggregation in ("quantile", "topk", "bottomk") else None,
        grouping,
        tuple(labels),
        draw(st.none() | _NUMBERS),
    )


@given(_queries())
def test_what_the_builder_writes_is_read_back_as_it_was(query: BuilderQuery) -> None:
    assert read_query(write_query(query)) == query


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("up", {}),
        ("( rate(up[ 5m ]) )", {"function": "rate", "window": "5m"}),
        ("sum (delta(up[$window])) by (a, b)",
         {"function": "delta", "window": "$window", "aggregation": "sum", "grouping": "by", "labels": ("a", "b")}),
        ("sum by () (up)", {"aggregation": "sum"}),
        ("sum without () (up)", {"aggregation": "sum", "grouping": "without"}),
        ("topk((3), up)", {"aggregation": "topk", "parameter": 3.0}),
        ('{__name__="up", a=~"b"}', {"filters": (Matcher("a", "=~", "b"),)}),
        ("up{a='$window'} # a comment", {"filters": (Matcher("a", "=", "$window"),)}),
        ("histogram_quantile(0.9, up)", {"percentile": 0.9}),
    ],
)  # fmt: skip
def test_a_text_of_a_form_that_the_builder_knows_is_shown(text: str, parts: dict[str, Any]) -> None:
    assert read_query(text) == BuilderQuery("up", **parts)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a / b", "combines values with “/”"),
        ("-a", "selects no metric"),
        ("1", "selects no metric"),
        ("a offset 5m", "at another time"),
        ("a @ 1", "at another time"),
        ("rate(a[5m] offset $__interval)", "at another time"),
        ("rate(a[5m] anchored)", "in another way"),
        ("max_over_time(rate(a[5m])[1h:1m])", "subquery"),
        ("abs(a)", "calls abs()"),
        ("abs(rate(a[5m]))", "calls abs()"),
        ("sum(sum by (x) (a))", "aggregates twice"),
        ("count_values('v', a)", "aggregates with count_values"),
        ("topk(scalar(b), a)", "is computed"),
        ('{__name__=~"a.*"}', "by its one name"),
        ('{job="a"}', "by its one name"),
        ("rate(a[5m + 1m])", "window is computed"),
        ("rate(a[step()])", "window is computed"),
        ("rate(a[300])", "window is computed"),
        ("sum(histogram_quantile(0.9, a))", "calls histogram_quantile()"),
    ],
)
def test_a_text_that_says_more_stays_a_text_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(NotShown) as refusal:
        read_query(text)
    assert reason in str(refusal.value)


@pytest.mark.parametrize(
    "parts",
    [
        {"metric": ""},
        {"filters": (Matcher("__name__", "=", "b"),)},
        {"filters": (Matcher("", "=", "b"),)},
        {"function": "rate"},
        {"window": "5m"},
        {"function": "rate", "window": "5m] or b["},
        {"function": "rate", "window": "5m", "number": 1.0},
        {"function": "evil", "window": "5m"},
        {"aggregation": "topk"},
        {"aggregation": "sum", "parameter": 1.0},
        {"grouping": "by", "labels": ("a",)},
        {"aggregation": "sum", "grouping": "by"},
        {"aggregation": "sum", "labels": ("a",)},
        {"percentile": float("nan")},
    ],
)
def test_parts_that_do_not_belong_together_are_refused(parts: dict[str, Any]) -> None:
    with pytest.raises(BadQuery):
        BuilderQuery(**{"metric": "a", **parts})


def test_a_filter_that_promql_refuses_is_refused() -> None:
    with pytest.raises(BadQuery):
        write_query(BuilderQuery("a", [Matcher("b", "=~", "(")]))


def test_a_text_that_is_no_promql_is_refused() -> None:
    with pytest.raises(BadQuery):
        read_query("sum(")
