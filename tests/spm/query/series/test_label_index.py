"""A matcher that names its values selects what its expression selects."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spm.query.request.batches import Matcher
from spm.query.series.label_index import LabelIndex
from spm.store import matchers

VALUES = ["", "a", "b", "ab", "a|b", "a.b", "A", "host_1", "host-1:9100", "é", "a b", "/var", "(a)", "#", "\n", "a\n"]
PATTERN = st.lists(
    st.sampled_from([*VALUES, "|", "|", ".", "*", "(", ")", "[a]", "{2}", "^", "$", "\\", "\\d"]), max_size=5
).map("".join)
MATCHER = st.builds(Matcher, st.just("l"), st.sampled_from(["=", "!=", "=~", "!~"]), PATTERN)


@settings(deadline=None)
@given(MATCHER)
def test_values_that_a_matcher_names_are_those_its_expression_matches(matcher: Matcher) -> None:
    named = matchers.literals(matcher)
    if named is not None:
        expected = matchers.mask(VALUES, matcher).tolist()
        assert [(value in named) == (matcher.op in ("=", "=~")) for value in VALUES] == expected


@settings(deadline=None)
@given(MATCHER)
def test_whether_an_absent_label_matches_is_what_the_expression_says(matcher: Matcher) -> None:
    if matchers.literals(matcher) is not None:
        assert matchers.matches_empty(matcher) == bool(matchers.mask([""], matcher)[0])


@settings(deadline=None)
@given(MATCHER)
def test_series_are_found_by_named_values_as_by_expressions(matcher: Matcher) -> None:
    if matchers.literals(matcher) is None:
        return
    label, values = LabelIndex(), VALUES[1:]  # series 0 lacks the label
    label.add(np.arange(1, len(VALUES)), np.arange(len(values)), [value.encode() for value in values], len(VALUES))
    hits = label.hits(matcher, lambda: None)
    selected = np.zeros(len(VALUES), np.bool_)
    selected[label.rows(hits, len(VALUES))] = True
    assert selected.tolist() == matchers.mask(VALUES, matcher).tolist()


@pytest.mark.parametrize(
    ("pattern", "named"),
    [("a", ("a",)), ("a|b", ("a", "b")), ("a|", ("a", "")), ("", ("",)), ("a.b", None), ("é", None), ("a\n", None)],
)
def test_only_plain_texts_are_looked_up(pattern: str, named: tuple[str, ...] | None) -> None:
    assert matchers.literals(Matcher("l", "=~", pattern)) == named
