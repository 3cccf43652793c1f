"""Claims about spm/wire.py: the canonical form of a series and the envelope."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spm.errors import BadMessage, CorruptBlock
from spm.limits import TIME_MAX_MS
from spm.wire import Envelope, SeriesTable, Stamp, canonical, hour_of, metric_of, parse_canonical, series_id
from tests.support.rows import envelope, form, number

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
SERIES = st.tuples(TEXT, st.dictionaries(TEXT, TEXT, max_size=3))
SAMPLES = st.lists(
    st.tuples(st.integers(0, 5), st.integers(1, 2**53), st.integers(0, 2**64 - 1).map(number)), max_size=20
)


@given(SERIES)
def test_a_canonical_form_gives_back_its_metric_and_labels(series: tuple[str, dict[str, str]]) -> None:
    assert parse_canonical(canonical(*series)) == series
    assert metric_of(canonical(*series)) == series[0].encode()


@given(st.lists(SERIES, max_size=9), st.lists(st.integers(0, 8), max_size=12))
def test_the_forms_of_some_rows_of_a_table_are_those_of_each(
    many: list[tuple[str, dict[str, str]]], rows: list[int]
) -> None:
    table = SeriesTable.from_canonical([canonical(*series) for series in many])
    some = np.array([row for row in rows if row < len(many)], np.int64)
    assert table.rows(some).canonicals() == [canonical(*many[row]) for row in some]


@given(st.lists(SERIES, min_size=2, max_size=30))
def test_two_series_never_share_a_canonical_form(many: list[tuple[str, dict[str, str]]]) -> None:
    distinct = {(metric, tuple(sorted(labels.items()))) for metric, labels in many}
    assert len({canonical(*series) for series in many}) == len(distinct)


@given(SERIES, st.randoms())
def test_a_canonical_form_does_not_depend_on_the_order_of_labels(
    series: tuple[str, dict[str, str]], by: object
) -> None:
    items = list(series[1].items())
    by.shuffle(items)  # type: ignore[attr-defined]
    assert canonical(series[0], dict(items)) == canonical(*series)


@pytest.mark.parametrize(
    "near",
    [("ab", {}), ("a", {"b": ""}), ("a", {"": "b"}), ("", {"a": "b"}), ("a", {"b": "c", "d": ""}), ("a", {"bc": "d"})],
    ids=str,
)
def test_moving_a_character_between_fields_gives_another_form(near: tuple[str, dict[str, str]]) -> None:
    every = [("ab", {}), ("a", {"b": ""}), ("a", {"": "b"}), ("", {"a": "b"}), ("a", {"b": "c", "d": ""})]
    assert [canonical(*other) == canonical(*near) for other in every].count(True) == (near in every)


@given(st.binary(max_size=40))
def test_bytes_that_are_no_canonical_form_are_refused_or_parsed_but_never_crash(raw: bytes) -> None:
    try:
        metric, labels = parse_canonical(raw)
    except CorruptBlock:
        return
    assert isinstance(metric, str)
    assert isinstance(labels, dict)


@pytest.mark.parametrize("text", ["x" * 65_536, "\ud800"], ids=["one byte over 65,535", "half of a pair"])
def test_a_name_that_cannot_be_written_is_a_bad_message(text: str) -> None:
    with pytest.raises(BadMessage):
        canonical("m", {"a": text})


def test_the_longest_name_can_be_written() -> None:
    assert parse_canonical(canonical("x" * 65_535, {})) == ("x" * 65_535, {})


def test_ids_of_series_are_frozen() -> None:
    assert series_id(canonical("cpu", {"host": "a"})) == 0xFAFE94D2936F2EEC


@pytest.mark.parametrize(
    ("ts", "hour"),
    [(1, 0), (3_600_000, 0), (3_600_001, 1), (0, -1)],
    ids=["just after the start", "the end is inside", "just after the end", "the start is outside"],
)
def test_hours_are_left_open(ts: int, hour: int) -> None:
    assert hour_of(np.array([ts], np.int64)).tolist() == [hour]


def same(a: Envelope, b: Envelope) -> bool:
    """Whether two envelopes are equal, values by their bits."""
    heads = [(e.app, e.source, e.stamp, e.message_id, e.rejected, len(e.series)) for e in (a, b)]
    series = [(e.series.ids, e.series.metrics, [e.series.canonical(i) for i in range(len(e.series))]) for e in (a, b)]
    rows = [(e.series_index, e.ts, e.values.view(np.int64)) for e in (a, b)]
    pairs = [*zip(*series, strict=True), *zip(*rows, strict=True)]
    return heads[0] == heads[1] and all(np.array_equal(x, y) for x, y in pairs)


@given(
    SAMPLES,
    st.integers(0, TIME_MAX_MS),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**16 - 1),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=60),
)
def test_an_envelope_comes_back_bit_for_bit(
    samples: list[tuple[int, int, float]], ms: int, process: int, sequence: int, source: str
) -> None:
    sent = envelope(samples, ms=ms, process=process, sequence=sequence, source=source, rejected=3)
    assert same(Envelope.from_bytes(sent.to_bytes()), sent)


def test_an_envelope_whose_texts_lie_apart_comes_back_in_order() -> None:
    sent = envelope([(0, 5, 1.0), (1, 5, 2.0)])
    text = np.frombuffer(b"--" + form(1) + b"-" + form(0), np.uint8)
    starts = np.array([3 + len(form(1)), 2], np.int64)
    table = SeriesTable(
        sent.series.ids, sent.series.metrics, text, starts, starts + np.array([len(form(0)), len(form(1))])
    )
    apart = Envelope(7, "host", sent.stamp, sent.message_id, table, sent.series_index, sent.ts, sent.values)
    assert Envelope.from_bytes(apart.to_bytes()).series.canonical(0) == form(0)
    assert apart.to_bytes() == sent.to_bytes()


def test_every_flipped_bit_of_an_envelope_is_found() -> None:
    raw = envelope([(1, 5, 1.5), (2, 6, 2.5)]).to_bytes()
    for at in range(len(raw) * 8):
        bad = bytearray(raw)
        bad[at // 8] ^= 1 << at % 8
        with pytest.raises(CorruptBlock):
            Envelope.from_bytes(bytes(bad))


def test_an_envelope_cut_or_extended_anywhere_is_refused() -> None:
    raw = envelope([(1, 5, 1.5)]).to_bytes()
    for bad in [*(raw[:n] for n in range(len(raw))), raw + b"\0", b"x" + raw]:
        with pytest.raises(CorruptBlock):
            Envelope.from_bytes(bad)


def test_an_envelope_of_another_version_is_named() -> None:
    raw = envelope([(1, 5, 1.5)]).to_bytes()
    with pytest.raises(CorruptBlock, match="unknown envelope version; got 9; wanted 1"):
        Envelope.from_bytes(raw[:4] + b"\x09" + raw[5:])


def test_columns_of_an_envelope_from_the_queue_can_be_written() -> None:
    got = Envelope.from_bytes(envelope([(1, 5, 1.5)]).to_bytes())
    columns = (got.ts, got.values, got.series_index, got.series.text, got.series.ids, got.series.starts)
    assert all(column.flags.writeable for column in columns)


@pytest.mark.parametrize("wrong", [{"message_id": b"short"}, {"ts": np.zeros(2, np.int64)}], ids=["id", "columns"])
def test_an_envelope_of_another_shape_cannot_be_made(wrong: dict[str, object]) -> None:
    with pytest.raises(AssertionError, match="BUG"):
        replace(envelope([(1, 5, 1.5)]), **wrong)  # type: ignore[arg-type]


def test_stamps_are_ordered_by_time_then_process_then_sequence() -> None:
    stamps = [Stamp(1, 1, 9), Stamp(1, 2, 0), Stamp(1, 2, 1), Stamp(2, 0, 0)]
    assert sorted(stamps) == stamps


FORMS = [canonical("m", {"host": host}) for host in "abcdef"]


def forms_of(table: SeriesTable) -> list[bytes]:
    return [table.canonical(number) for number in range(len(table))]


def test_tables_of_one_cache_are_joined_without_a_copy_of_its_text() -> None:
    cache = SeriesTable.from_canonical(FORMS)
    joined = SeriesTable.concatenate([cache.rows(np.array(some, np.int64)) for some in ([0, 3], [], [5, 1])])
    assert joined.text is cache.text
    assert forms_of(joined) == [FORMS[at] for at in (0, 3, 5, 1)]


def test_tables_of_several_caches_bring_their_own_forms_alone() -> None:
    first, second = SeriesTable.from_canonical(FORMS), SeriesTable.from_canonical(FORMS[2:])
    joined = SeriesTable.concatenate(
        [first.rows(np.array([4, 0], np.int64)), second.rows(slice(1, 3)), first.rows(slice(0, 0))]
    )
    assert forms_of(joined) == [FORMS[at] for at in (4, 0, 3, 4)]
    assert len(joined.text) == sum(map(len, forms_of(joined)))
    assert len(SeriesTable.concatenate([]).text) == 0
