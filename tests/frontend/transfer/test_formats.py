"""Every format reads back the series, times and bits that it wrote: properties of the formats alone."""

import struct
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frontend.transfer import cells
from frontend.transfer import readers as transfer_readers
from frontend.transfer import writers as transfer_writers
from frontend.transfer.message_builder import MessageBuilder
from frontend.transfer.selectors import series_of
from spm.errors import BadMessage
from spm.limits import IMPORT_HOURS_AT_ONCE, IMPORT_SAMPLES_AT_ONCE
from spm.query.formats.exposition import series_text
from spm.query.request.batches import METRIC_NAME, SeriesBatch
from spm.wire import STALE_BITS, Parsed, parse_canonical

NOW = 1_700_000_000_000
Samples = dict[tuple[tuple[tuple[str, str], ...], int], int]  # (labels, time) -> bits

WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=8)
NAMES = WORDS.filter(lambda name: name != METRIC_NAME)
LABELS = st.builds(lambda metric, tags: {METRIC_NAME: metric, **tags}, WORDS, st.dictionaries(NAMES, WORDS, max_size=3))
BITS = st.one_of(
    st.floats().map(lambda value: struct.unpack("<Q", struct.pack("<d", value))[0]),
    st.sampled_from([STALE_BITS, 1 << 63, 0x7FF8_0000_0000_0007, 0xFFF8_0000_0000_0000, 0x7FF0_0000_0000_0001]),
    st.integers(-(10**12), 10**12).map(lambda n: struct.unpack("<Q", struct.pack("<d", n / 100))[0]),
)
POINTS = st.dictionaries(st.integers(1, NOW), BITS, min_size=1, max_size=6)


def batch_of(series: list[tuple[dict[str, str], dict[int, int]]]) -> SeriesBatch:
    """Series with their points, as a read gives them."""
    ts = [time for _, points in series for time in sorted(points)]
    bits = [points[time] for _, points in series for time in sorted(points)]
    ends = np.cumsum([0, *(len(points) for _, points in series)], dtype=np.int64)
    values = np.array(bits, np.uint64).view(np.float64)
    return SeriesBatch([labels for labels, _ in series], ends, np.array(ts, np.int64), values)


def samples_of(parts: Iterator[Parsed]) -> Samples:
    """Return the samples that were read."""
    samples: Samples = {}
    for parsed in parts:
        assert not parsed.rejected, parsed.rejections
        bits = parsed.values.view(np.uint64).tolist()
        for index, time, value in zip(parsed.series_index.tolist(), parsed.ts.tolist(), bits, strict=True):
            metric, tags = parse_canonical(parsed.series.canonical(index))
            samples[tuple(sorted({**tags, METRIC_NAME: metric}.items())), time] = value
    return samples


def expected_of(series: list[tuple[dict[str, str], dict[int, int]]]) -> Samples:
    """Return the samples of the series."""
    return {(tuple(sorted(labels.items())), time): bits for labels, points in series for time, bits in points.items()}


def write_and_read(form: str, series: list[tuple[dict[str, str], dict[int, int]]]) -> Samples:
    """Write the series and read them again."""
    names = sorted({name for labels, _ in series for name in labels} - {METRIC_NAME})
    written = b"".join(transfer_writers.FORMS[form][0]([batch_of(series)], names))
    pieces = (written[at : at + 7_000] for at in range(0, len(written), 7_000))
    return samples_of(transfer_readers.FORMS[form](pieces, NOW))


SERIES = st.lists(
    st.tuples(LABELS, POINTS), min_size=1, max_size=4, unique_by=lambda one: tuple(sorted(one[0].items()))
)


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
@settings(deadline=None, max_examples=60)
@given(series=SERIES)
def test_a_form_that_holds_bits_reads_back_to_the_same_bits(
    form: str, series: list[tuple[dict[str, str], dict[int, int]]]
) -> None:
    assert write_and_read(form, series) == expected_of(series)


@pytest.mark.parametrize("form", ["prometheus", "openmetrics"])
@settings(deadline=None, max_examples=60)
@given(series=SERIES)
def test_text_reads_back_to_the_same_bits_but_for_payloads_and_markers(
    form: str, series: list[tuple[dict[str, str], dict[int, int]]]
) -> None:
    plain = struct.unpack("<Q", struct.pack("<d", float("nan")))[0]

    def plain_bits(bits: int) -> int:
        return plain if np.isnan(np.array([bits], np.uint64).view(np.float64)[0]) else bits

    expected = {key: plain_bits(bits) for key, bits in expected_of(series).items() if bits != STALE_BITS}
    assert write_and_read(form, series) == expected


@given(LABELS)
def test_series_in_text_reads_back_to_its_labels(labels: dict[str, str]) -> None:
    assert series_of(series_text(labels)) == labels


@pytest.mark.parametrize("text", ["", "{}", "a{", 'a{b="c"', 'a{b="c",b="d"}', '{"a","b"}', 'a{"b"}', "a b", '{x="y"}'])
def test_text_that_is_no_series_is_refused(text: str) -> None:
    with pytest.raises(BadMessage):
        series_of(text)


@given(WORDS)
def test_cell_of_text_is_never_a_formula_and_reads_back(text: str) -> None:
    cell = cells.guarded(text)
    assert cells.unguarded(cell) == text
    assert not cell.startswith(("\t", "\r", "\n"))
    assert not cell.lstrip().startswith(("=", "+", "-", "@", "|", "＝", "＋", "－", "＠"))


@pytest.mark.parametrize("text", [" =1", "|calc", "\n=1", "\nplain", "＝1", "　＠x", "'=1", "' =1"])
def test_every_text_that_a_spreadsheet_may_take_for_a_formula_gets_an_apostrophe(text: str) -> None:
    assert cells.guarded(text) == "'" + text
    assert cells.unguarded("'" + text) == text


def test_negative_number_in_a_table_stays_a_number() -> None:
    minus = struct.unpack("<Q", struct.pack("<d", -2.5))[0]
    [_, body] = transfer_writers.table([batch_of([({METRIC_NAME: "=cmd"}, {5: minus})])], [])
    assert body == b"'=cmd,5,-2.5\r\n"


def test_foreign_text_and_lines_are_taken_as_they_are() -> None:
    text = (
        b'# HELP up x\n# TYPE up gauge\nup{job="a b 5"} 1 1000\n\nup 2e3 2000 # {trace="x"} 1\n  bad line here\n'
        b"up NaN 3000\n"
    )
    parts = list(transfer_readers.text([text], NOW))
    assert [p.rejected for p in parts] == [0, 1]
    assert parts[1].rejections[0].line == 6
    assert parts[0].ts.tolist() == [1000, 2000, 3000]
    line = b'{"metric":{"__name__":"m","job":"x"},"values":[1,null,"Infinity"],"timestamps":[1,2,3]}\n'
    [parsed] = transfer_readers.json_lines([line], NOW)
    assert str(parsed.values.tolist()) == "[1.0, nan, inf]"


def test_sample_without_a_time_gets_the_servers() -> None:
    [parsed] = transfer_readers.text([b"up 1\n"], NOW)
    assert (parsed.ts.tolist(), parsed.timeless) == ([NOW], 1)


def test_bad_rows_refuse_themselves_and_are_named() -> None:
    lines = (
        b'{"metric":{"__name__":"m"},"values":[1],"timestamps":[0]}\nnonsense\n'
        b'{"metric":{},"values":[1],"timestamps":[5]}\n'
    )
    [parsed] = transfer_readers.json_lines([lines], NOW)
    assert [r.line for r in parsed.rejections] == [1, 2, 3]
    assert parsed.rejected == 3


@pytest.mark.parametrize(
    ("form", "body"),
    [("csv", b"a,b\n1,2\n"), ("parquet", b"PAR1 no")],
)
def test_a_body_in_another_format_is_refused_with_a_reason(form: str, body: bytes) -> None:
    with pytest.raises(BadMessage):
        list(transfer_readers.FORMS[form]([body], NOW))


def test_messages_of_a_file_are_bounded_in_samples_and_hours() -> None:
    hours = IMPORT_HOURS_AT_ONCE * 2 + 1
    times = ",".join(str(3_600_000 * hour + 5) for hour in range(hours))
    line = f'{{"metric":{{"__name__":"m"}},"values":[{",".join("1" * hours)}],"timestamps":[{times}]}}\n'.encode()
    assert [len(parsed.ts) for parsed in transfer_readers.json_lines([line], NOW)] == [500, 500, 1]
    many = b"".join(b"m %d %d\n" % (n, n + 1) for n in range(IMPORT_SAMPLES_AT_ONCE + 1))
    assert [len(parsed.ts) for parsed in transfer_readers.text([many], NOW)] == [IMPORT_SAMPLES_AT_ONCE, 1]


@pytest.mark.parametrize("form", transfer_writers.FORMS)
def test_an_export_holds_one_batch_at_a_time_however_many_there_are(form: str) -> None:
    batch_values: list[weakref.ref[Any]] = []

    def batches() -> Iterator[SeriesBatch]:
        for number in range(20):
            batch = batch_of([({METRIC_NAME: "m", "n": str(number)}, dict.fromkeys(range(1, 50), number))])
            batch_values.append(weakref.ref(batch.values))
            yield batch

    most = 0
    for _ in transfer_writers.FORMS[form][0](batches(), ["n"]):
        most = max(most, sum(each() is not None for each in batch_values))
    assert len(batch_values) == 20
    assert most <= 2  # the one that is written, and the next one while it is built


def test_samples_of_a_file_are_found_at_their_lines() -> None:
    builder = MessageBuilder(NOW)
    for line in (2, 5, 7):
        ts = np.array([NOW - 5_000_000 * line, 9 - line])
        builder.add(line, {METRIC_NAME: "m", "odd": str(line % 2)}, ts, np.full(2, line, np.float64))
    messages = list(builder.rest())
    assert [one.places and one.places(range(len(one.ts))) for one in messages] == [
        one.values.tolist() for one in messages
    ]
