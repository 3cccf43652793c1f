"""The index of series answers what looking at every series would, however its series came to be known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spm.query.request.batches import METRIC_NAME, Matcher
from spm.query.series import canonical_columns, label_index
from spm.query.series.index import SeriesIndex
from spm.store import keys
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
    def refuse(*found: object) -> None:
        raise AssertionError(found)

    return SeriesIndex(APP, refuse)


def plain(found: list[dict[str, str]]) -> list[tuple[tuple[str, str], ...]]:
    return sorted(tuple(sorted((n, v) for n, v in labels.items() if v)) for labels in found)


@given(
    st.lists(SERIES, max_size=12),
    st.lists(SERIES, max_size=6),
    st.lists(MATCHER, max_size=3),
    st.booleans(),
    st.booleans(),
)
def test_select_finds_what_every_matcher_is_satisfied_by(
    first: list[Named], later: list[Named], matchers: list[Matcher], inverted: bool, many: bool
) -> None:
    backend, held = MemoryBackend(), index()
    put(backend, first)
    held.load(backend)
    if inverted:
        held.select(matchers)  # what is made for this must take in what comes later
    put(backend, later)
    held.load(backend)
    every = {canonical(m, labels): {METRIC_NAME: m, **labels} for m, labels in [*first, *later]}.values()
    wanted = [each for each in every if all(mask([each.get(m.name, "")], m)[0] for m in matchers)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(label_index, "_FEW", 0 if many else label_index._FEW)
        rows = held.select(matchers)
    assert (np.diff(rows) > 0).all()
    assert plain(held.labels(rows)) == plain(wanted)
    assert held.names(rows) == sorted({n for each in wanted for n, v in each.items() if v})
    assert held.values("host", rows) == sorted({each["host"] for each in wanted if each.get("host")})


def test_a_series_is_read_by_key_once(monkeypatch: pytest.MonkeyPatch) -> None:
    backend, held = MemoryBackend(), index()
    put(backend, [("up", {"host": "a"}), ("up", {"host": "b"})])
    ids = [series_id(canonical("up", {"host": host})) for host in "abab"]
    pairs = np.array(ids, np.uint64), np.full(4, metric_id(b"up"), np.uint64)
    held.ensure(backend, *pairs)
    assert len(held) == 2
    monkeypatch.setattr(backend, "get", lambda *_: pytest.fail("asked again"))
    held.ensure(backend, *pairs)


def test_many_late_series_are_known_like_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spm.query.series.index._UNSORTED_LEAST", 3)
    backend, held = MemoryBackend(), index()
    for count in range(1, 12):
        put(backend, [("up", {"n": str(n)}) for n in range(count)])
        held.load(backend)
        assert len(held) == count
    assert len(held._late) <= 4


@given(st.lists(SERIES, min_size=1, max_size=8))
def test_texts_that_share_a_hash_are_told_apart(series: list[Named]) -> None:
    texts = [canonical(metric, labels) for metric, labels in series]
    wanted = {c.name: [c.texts[n] for n in c.number.tolist()] for c in canonical_columns._parse_each(texts)}
    assert {c.name: [c.texts[n] for n in c.number.tolist()] for c in canonical_columns.columns_of(texts)} == wanted
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(canonical_columns, "_are_equal", lambda *_: False)
        assert {c.name: [c.texts[n] for n in c.number.tolist()] for c in canonical_columns.columns_of(texts)} == wanted


def test_answers_of_regular_expressions_are_remembered_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_index, "LABEL_MASKS_MAX", 3)
    label = label_index.LabelIndex()
    label.add(np.arange(2), np.arange(2), [b"a", b"b"], 2)
    asked = [Matcher("host", "=~", f"a{{{n}}}") for n in range(9)]
    for matcher in asked:
        label.hits(matcher, lambda: None)
    assert len(label._masks) == 3
    assert label._mask_bytes == sum(map(len, label._masks.values())) == 9
    assert np.asarray(label.hits(Matcher("host", "=~", "b+"), lambda: None)).tolist() == [False, False, True]
    label.add(np.arange(2, 3), np.arange(1), [b"bb"], 3)
    assert np.asarray(label.hits(Matcher("host", "=~", "b+"), lambda: None)).tolist() == [False, False, True, True]
    assert label._mask_bytes == sum(map(len, label._masks.values())) == 10
