"""Labels by column behave as a list of dicts when they are selected, grouped, sorted and written."""

from __future__ import annotations

import itertools
import json

import hypothesis
import numpy as np
from hypothesis import strategies as st

from spm.query.promql.operators.vector import finish, make_vector
from spm.query.series.label_table import (
    Column,
    Groups,
    Labels,
    LabelTable,
    group_by,
    group_equal,
    group_without,
    json_of,
    label_order,
    take_labels,
    used_values,
)

NAMES = ("__name__", "__type__", "a", "host", "le")
TEXTS = ("", "x", "y", "ä", 'q"\\\n', "😀", "h1", "h10", "h2")
SERIES = st.lists(
    st.dictionaries(st.sampled_from(NAMES), st.sampled_from(TEXTS[1:])).map(
        lambda labels: dict(sorted(labels.items()))
    ),
    max_size=12,
)


def table_of(series: list[Labels]) -> LabelTable:
    """These labels by column, with an unused value among the values."""
    columns = [
        Column(name, np.array([TEXTS.index(each.get(name, "")) for each in series], np.int32), [*TEXTS, "unused"])
        for name in NAMES
    ]
    return LabelTable(columns, len(series))


def same(groups: Groups, expected: Groups) -> bool:
    return groups.labels == expected.labels and groups.codes.tolist() == expected.codes.tolist()


@hypothesis.settings(deadline=None)
@hypothesis.given(series=SERIES, names=st.lists(st.sampled_from((*NAMES, "absent")), max_size=3))
def test_table_is_grouped_and_sorted_as_a_list_is(series: list[Labels], names: list[str]) -> None:
    table = table_of(series)
    assert same(group_by(table, names), group_by(series, names))
    assert same(group_without(table, names), group_without(series, names))
    assert same(group_equal(table), group_equal(series))
    assert label_order(table).tolist() == table.order().tolist() == label_order(series).tolist()
    assert all(used_values(table, name) == used_values(series, name) or not series for name in names)


def test_tables_of_many_series_are_sorted_as_lists_are() -> None:
    """From some series on a table is sorted by column."""
    draws = np.random.default_rng(5).integers(0, len(TEXTS), (300, len(NAMES)))
    series = [{n: TEXTS[code] for n, code in zip(NAMES, row, strict=True) if code} for row in draws.tolist()]
    for count in (63, 64, 65, 300):
        assert label_order(table_of(series[:count])).tolist() == label_order(series[:count]).tolist()


@hypothesis.settings(deadline=None)
@hypothesis.given(series=SERIES, data=st.data())
def test_table_is_read_as_a_list_is(series: list[Labels], data: st.DataObject) -> None:
    table = table_of(series)
    assert [table[place] for place in range(len(series))] == series == list(table) == table[:]
    rows = np.array(data.draw(st.lists(st.sampled_from(range(len(series))))) if series else [], np.int64)
    assert take_labels(table, rows) == take_labels(series, rows)
    has_labels = np.array([bool(each) for each in series], np.bool_)
    assert table.take(has_labels) == [each for each in series if each]


@hypothesis.settings(deadline=None)
@hypothesis.given(series=SERIES)
def test_table_is_written_as_a_list_is(series: list[Labels]) -> None:
    (raw, ends), (other, borders) = table_of(series).json(), json_of(series)
    assert ends.tolist() == borders.tolist()
    assert raw[: ends[-1]].tobytes() == other[: borders[-1]].tobytes()
    assert [json.loads(raw[a:b].tobytes()) for a, b in itertools.pairwise(ends)] == series


@hypothesis.settings(deadline=None)
@hypothesis.given(series=SERIES, nameless=st.sampled_from(("all", "none", "some")))
def test_names_are_removed_at_the_end_as_from_a_list(series: list[Labels], nameless: str) -> None:
    distinct = [each for row, each in enumerate(series) if each not in series[:row]]
    values = np.eye(len(distinct))  # never two series at one step
    vectors = [
        make_vector(each, values, values > 0, nameless=nameless == "all") for each in (distinct, table_of(distinct))
    ]
    if nameless == "some":
        for each in vectors:
            each.nameless[::2] = True
    expected, finished = map(finish, vectors)
    assert finished.labels == expected.labels
    assert finished.values.tolist() == expected.values.tolist()


def test_groups_of_many_wide_columns_are_distinguished() -> None:
    rng = np.random.default_rng(1)
    values = ["", *map(str, range(200_000))]
    columns = [Column(name, rng.integers(0, 200_000, 3_000).astype(np.int32), values) for name in "abcd"]
    table = LabelTable(columns, 3_000)
    assert same(group_equal(table), group_equal(list(table)))
    assert label_order(table).tolist() == label_order(list(table)).tolist()


@hypothesis.settings(deadline=None)
@hypothesis.given(seed=st.integers(0, 2**32), width=st.integers(1, 600), series=st.integers(0, 50))
def test_series_are_sorted_equally_by_few_values_and_by_many(seed: int, width: int, series: int) -> None:
    """Many values are numbered by sorting instead of a look-up table, many pairs of them sorted by comparison."""
    rng = np.random.default_rng(seed)
    for more in (0, 5_000):
        values = ["", *map(str, range(width + more))]
        codes = [np.append(rng.integers(0, len(values), series), np.arange(width)).astype(np.int32) for _ in "ab"]
        table = LabelTable([Column(name, each, values) for name, each in zip("ab", codes, strict=True)], series + width)
        assert label_order(table).tolist() == label_order(list(table)).tolist()
        assert [json.loads(bytes(text)) for text in _texts(table)] == list(table)


def _texts(table: LabelTable) -> list[bytes]:
    raw, borders = table.json()
    return [raw[a:b].tobytes() for a, b in itertools.pairwise(borders.tolist())]
