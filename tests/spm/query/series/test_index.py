"""The series index answers what examining every series would, however its series were read."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spm.arrays import BOOL
from spm.errors import QueryTimeout
from spm.query.request.batches import METRIC_NAME, Matcher
from spm.query.series import canonical_columns, label_index
from spm.query.series.index import SeriesIndex
from spm.store import keys, matchers
from spm.store.backends.base import Backend
from spm.store.backends.memory import MemoryBackend
from spm.store.matchers import mask
from spm.wire import canonical, metric_id, series_id

APP = 7
LABELS = st.dictionaries(st.sampled_from(["host", "dc", "é", "__name"]), st.sampled_from(["", "a", "b", "ab", "ü"]))
SERIES = st.tuples(st.sampled_from(["up", "load", "é"]), LABELS)
MATCHER = st.builds(
    Matcher,
    st.sampled_from([METRIC_NAME, "host", "dc", "é", "none"]),
    st.sampled_from(["=", "!=", "=~", "!~"]),
    st.sampled_from(["", "a", "up", "a|b", ".*", ".+", "ü?", "x"]),
)
Named = tuple[str, dict[str, str]]


def put(backend: Backend, series: list[Named]) -> None:
    forms_ = {canonical(metric, labels): metric for metric, labels in series}
    rows = [(keys.series(APP, metric_id(m.encode()), series_id(form)), {b"c": form}) for form, m in forms_.items()]
    backend.put([("series", rows)])


def index() -> SeriesIndex:
    def refuse(*args: object) -> None:
        raise AssertionError(args)

    return SeriesIndex(APP, refuse)


def plain(series: list[dict[str, str]]) -> list[tuple[tuple[str, str], ...]]:
    return sorted(tuple(sorted((n, v) for n, v in labels.items() if v)) for labels in series)


@given(
    st.lists(SERIES, max_size=12),
    st.lists(SERIES, max_size=6),
    st.lists(MATCHER, max_size=3),
    st.booleans(),
    st.booleans(),
)
def test_select_gives_the_series_that_satisfy_every_matcher(
    first: list[Named], later: list[Named], matchers: list[Matcher], inverted: bool, many: bool
) -> None:
    backend, series_index = MemoryBackend(), index()
    put(backend, first)
    series_index.load(backend)
    if inverted:
        series_index.select(matchers)  # the inverse made for this must include later series
    put(backend, later)
    series_index.load(backend)
    every = {canonical(m, labels): {METRIC_NAME: m, **labels} for m, labels in [*first, *later]}.values()
    expected = [each for each in every if all(mask([each.get(m.name, "")], m)[0] for m in matchers)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(label_index, "_FEW", 0 if many else label_index._FEW)
        rows = series_index.select(matchers)
    assert (np.diff(rows) > 0).all()
    assert plain(series_index.labels(rows)) == plain(expected)
    assert series_index.names(rows) == sorted({n for each in expected for n, v in each.items() if v})
    assert series_index.values("host", rows) == sorted({each["host"] for each in expected if each.get("host")})


def test_a_series_is_read_by_key_once(monkeypatch: pytest.MonkeyPatch) -> None:
    backend, series_index = MemoryBackend(), index()
    put(backend, [("up", {"host": "a"}), ("up", {"host": "b"})])
    ids = [series_id(canonical("up", {"host": host})) for host in "abab"]
    pairs = np.array(ids, np.uint64), np.full(4, metric_id(b"up"), np.uint64)
    series_index.ensure(backend, *pairs)
    assert len(series_index) == 2
    monkeypatch.setattr(backend, "get", lambda *_: pytest.fail("read again"))
    series_index.ensure(backend, *pairs)


def test_many_new_series_are_known_like_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spm.query.series.index._UNSORTED_LEAST", 3)
    backend, series_index = MemoryBackend(), index()
    for count in range(1, 12):
        put(backend, [("up", {"n": str(n)}) for n in range(count)])
        series_index.load(backend)
        assert len(series_index) == count
    assert len(series_index._unsorted) <= 4


@given(st.lists(SERIES, min_size=1, max_size=8))
def test_texts_that_share_a_hash_are_distinguished(series: list[Named]) -> None:
    texts = [canonical(metric, labels) for metric, labels in series]
    expected = {c.name: [c.texts[n] for n in c.number.tolist()] for c in canonical_columns._parse_each(texts)}
    assert {c.name: [c.texts[n] for n in c.number.tolist()] for c in canonical_columns.columns_of(texts)} == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(canonical_columns, "_are_equal", lambda *_: False)
        assert {
            c.name: [c.texts[n] for n in c.number.tolist()] for c in canonical_columns.columns_of(texts)
        } == expected


def test_answers_of_regular_expressions_are_remembered_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_index, "LABEL_MASKS_MAX", 3)
    label = label_index.LabelIndex()
    label.add(np.arange(2), np.arange(2), [b"a", b"b"], 2)
    patterns = [Matcher("host", "=~", f"a{{{n}}}") for n in range(9)]
    for matcher in patterns:
        label.hits(matcher, lambda: None)
    assert len(label._masks) == 3
    assert label._masks.weight == 9
    assert np.asarray(label.hits(Matcher("host", "=~", "b+"), lambda: None)).tolist() == [False, False, True]
    label.add(np.arange(2, 3), np.arange(1), [b"bb"], 3)
    assert np.asarray(label.hits(Matcher("host", "=~", "b+"), lambda: None)).tolist() == [False, False, True, True]
    assert label._masks.weight == 10


def test_a_regular_expression_goes_on_where_a_deadline_ended_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matchers, "MATCHED_BYTES_AT_ONCE", 60)
    matched: list[int] = []

    def counting_mask(texts: pa.Array, matcher: Matcher) -> BOOL:
        matched.append(len(texts))
        return mask(texts, matcher)

    monkeypatch.setattr(label_index, "mask", counting_mask)
    label = label_index.LabelIndex()
    label.add(np.arange(100), np.arange(100), [b"host-%03d" % number for number in range(100)], 100)
    matcher, left = Matcher("host", "=~", "h.*9"), [3]

    def check_deadline() -> None:
        left[0] -= 1
        if left[0] < 0:
            raise QueryTimeout("late")

    for _ in range(100):
        with suppress(QueryTimeout):
            hits = label.hits(matcher, check_deadline)
            break
        left[0] = 3
    assert np.flatnonzero(np.asarray(hits)).tolist() == [number for number in range(1, 101) if (number - 1) % 10 == 9]
    assert sum(matched) == 101, "no value, the absent one included, is matched twice"
    assert len(matched) > 10
