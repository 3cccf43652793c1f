"""Remote write 1.0 and 2.0: the samples of requests by an independent encoder, and what is rejected or reported."""

import struct
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.protocols.common import naming
from ingest.protocols.common.series_cache import SeriesCache
from ingest.protocols.prometheus import remote_write
from ingest.protocols.prometheus.remote_write_kernels import NO_SUCH_SYMBOL, ODD_REFERENCES
from spm.errors import BadMessage, LimitExceeded
from spm.limits import FUTURE_MS, LABEL_VALUE_BYTES_MAX, LABELS_MAX, MESSAGE_SERIES_MAX, REJECTIONS_MAX
from spm.wire import STALE_BITS, Parsed, parse_canonical
from tests.ingest.protocols.remote_bodies import Series, label, part, real, request, request_v2, sample, varint, whole

NOW = 1_767_225_600_000
UP = [("__name__", "up"), ("job", "node")]
Row = tuple[str, dict[str, str], int, int]  # metric, labels, time, bits of the value
Form = tuple[Callable[..., bytes], Callable[..., Parsed]]

ONE: Form = (request, remote_write.parse)
TWO: Form = (request_v2, remote_write.parse_v2)
BOTH = pytest.mark.parametrize("form", [ONE, TWO], ids=["1.0", "2.0"])


def rows(parsed: Parsed) -> list[Row]:
    """Returns the parsed samples, one row for each."""
    series = [parse_canonical(parsed.series.canonical(n)) for n in range(len(parsed.series))]
    bits = parsed.values.view(np.uint64)
    return [(*series[s], int(t), int(v)) for s, t, v in zip(parsed.series_index, parsed.ts, bits, strict=True)]


def expected_rows(series: Sequence[Series]) -> list[Row]:
    """Returns the rows that these series should give."""
    result = []
    for one in series:
        labels = {name: value for name, value in one.labels if value}
        metric = labels.pop("__name__")
        result += [(metric, dict(sorted(labels.items())), ts, bits_of(value)) for ts, value in one.samples]
    return result


def bits_of(value: float) -> int:
    """The 64 bits of a value."""
    (bits,) = struct.unpack("<Q", struct.pack("<d", value))
    return int(bits)


def reasons(written: Parsed) -> list[str]:
    """Returns the reasons of all rejections."""
    return [one.reason for one in written.rejections]


texts = st.text(st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=12)
label_sets = st.dictionaries(texts.filter(lambda t: t != "__name__"), texts, max_size=4)
values = st.integers(0, (1 << 64) - 1).map(lambda b: struct.unpack("<d", struct.pack("<Q", b))[0])
samples = st.lists(st.tuples(st.integers(1, NOW), values), max_size=4)


@st.composite
def series_lists(draw: st.DrawFn) -> list[Series]:
    """Entries of requests: few series, so that some are named twice; labels in any order."""
    names = draw(st.lists(st.tuples(texts, label_sets), min_size=1, max_size=4))
    result = []
    for _ in range(draw(st.integers(0, 8))):
        metric, labels = draw(st.sampled_from(names))
        pairs = draw(st.permutations([("__name__", metric), *labels.items()]))
        result.append(Series(pairs, draw(samples)))
    return result


@BOTH
@settings(max_examples=150, deadline=None)
@given(series=series_lists(), again=series_lists())
def test_requests_are_read_as_they_were_meant_by_a_cold_cache_and_a_warm_one(
    form: Form, series: list[Series], again: list[Series]
) -> None:
    encode, parse = form
    cache = SeriesCache()
    for one in (series, again, series):
        assert rows(parse(encode(one), now_ms=NOW, cache=cache)) == expected_rows(one)


@BOTH
@pytest.mark.parametrize("wrong_ms", [0, NOW + FUTURE_MS + 1], ids=["too early", "too late"])
def test_bad_time_of_a_known_series_is_rejected_as_that_of_a_new_one(form: Form, wrong_ms: int) -> None:
    encode, parse = form
    cache, body = SeriesCache(), encode([Series(UP, [(NOW, 1.0), (wrong_ms, 2.0), (NOW + 1, 3.0)])])
    new, known = (parse(body, now_ms=NOW, cache=cache) for _ in range(2))
    assert rows(known) == rows(new)
    assert (known.rejected, known.rejections) == (new.rejected, new.rejections)
    assert (known.rejected, known.values.tolist()) == (1, [1.0, 3.0])


def test_both_versions_share_what_is_known_of_a_series() -> None:
    cache = SeriesCache()
    remote_write.parse(request([Series(UP, [(NOW, 1.0)])]), now_ms=NOW, cache=cache)
    before = cache.generation().form_bytes
    remote_write.parse_v2(request_v2([Series(UP, [(NOW, 2.0)])]), now_ms=NOW, cache=cache)
    assert cache.generation().form_bytes == before


@BOTH
@pytest.mark.parametrize("bits", [STALE_BITS, 0x7FF8000000000001, 0xFFF0000000000001, 1, 1 << 63], ids=hex)
def test_values_keep_their_very_bits(form: Form, bits: int) -> None:
    encode, parse = form
    value = struct.unpack("<d", struct.pack("<Q", bits))[0]
    [row] = rows(parse(encode([Series(UP, [(NOW, value)])]), now_ms=NOW))
    assert row[3] == bits


FAULTY = {
    "no labels": ([], remote_write.NO_LABELS),
    "no metric": ([("job", "a")], naming.NO_METRIC),
    "an empty metric": ([("__name__", ""), ("job", "a")], naming.NO_METRIC),
    "a label twice": ([*UP, ("job", "b")], naming.LABEL_REPEATED),
    "a metric twice": ([*UP, ("__name__", "b")], naming.LABEL_REPEATED),
    "no name": ([*UP, ("", "b")], naming.NO_LABEL_NAME),
    "a long metric": ([("__name__", "m" * 257)], naming.METRIC_TOO_LONG),
    "a long name": ([*UP, ("n" * 257, "b")], naming.LABEL_NAME_TOO_LONG),
    "a long value": ([*UP, ("a", "v" * (LABEL_VALUE_BYTES_MAX + 1))], remote_write.TOO_LONG_A_LABEL),
    "too many": ([*UP, *((f"l{n}", "v") for n in range(LABELS_MAX))], naming.TOO_MANY_LABELS),
}


@BOTH
@pytest.mark.parametrize("case", FAULTY)
def test_labels_that_break_the_rules_reject_their_series_alone(form: Form, case: str) -> None:
    encode, parse = form
    labels, reason = FAULTY[case]
    good = Series(UP, [(NOW, 1.0)])
    written = parse(encode([good, Series(labels, [(NOW, 2.0), (NOW, 3.0)]), good]), now_ms=NOW)
    assert rows(written) == expected_rows([good, good])
    reasons = [(one.line, one.reason.replace(naming.LABEL_VALUE_TOO_LONG, reason)) for one in written.rejections]
    assert (reasons, written.rejected) == ([(2, reason)], 2)


def test_a_label_without_value_is_none() -> None:
    [row] = rows(remote_write.parse(request([Series([*UP, ("zone", "")], [(NOW, 1.0)])]), now_ms=NOW))
    assert row[1] == {"job": "node"}


def test_a_label_that_is_no_text_rejects_its_series() -> None:
    bad = part(1, part(1, part(1, b"__name__") + part(2, b"\xff\xfe")) + part(2, sample(NOW, 1.0)))
    assert reasons(remote_write.parse(bad, now_ms=NOW)) == [naming.NOT_UTF8]


@pytest.mark.parametrize(
    ("refs", "reason"),
    [([1, 2, 1], ODD_REFERENCES), ([1, 9], NO_SUCH_SYMBOL), ([1, 1 << 40], NO_SUCH_SYMBOL)],
)
def test_references_that_name_nothing_reject_their_series(refs: list[int], reason: int) -> None:
    head = part(4, "") + part(4, "__name__") + part(4, "up")
    inner = part(1, b"".join(map(varint, refs))) + part(2, sample(NOW, 1.0))
    assert reasons(remote_write.parse_v2(head + part(5, inner), now_ms=NOW)) == [remote_write.FAULTS[reason]]


@pytest.mark.parametrize("packed", [True, False])
def test_references_may_be_packed_or_single_and_symbols_may_come_last(packed: bool) -> None:
    body = request_v2([Series(UP, [(NOW, 1.0)])], packed=packed)
    symbols = b"".join(part(4, text) for text in ("", "__name__", "up", "job", "node"))
    assert body.startswith(symbols)
    moved = body[len(symbols) :] + symbols
    assert rows(remote_write.parse_v2(moved, now_ms=NOW)) == expected_rows([Series(UP, [(NOW, 1.0)])])


def test_labels_and_samples_may_stand_in_any_order_between_fields_that_are_unknown() -> None:
    first, second = (part(1, label(*pair)) for pair in UP)
    inner = first + part(2, sample(NOW, 1.0)) + whole(9, 7) + second + part(99, b"more") + real(17, 1.0)
    body = whole(7, 1) + part(1, inner) + part(1, first + second + part(2, whole(2, NOW) + part(5, b"") + real(1, 2.0)))
    for _ in range(2):
        assert rows(remote_write.parse(body, now_ms=NOW)) == expected_rows([Series(UP, [(NOW, 1.0), (NOW, 2.0)])])


@BOTH
def test_times_out_of_range_reject_their_samples_by_series(form: Form) -> None:
    encode, parse = form
    late, now_s = NOW + FUTURE_MS + 1, NOW // 1000
    written = parse(encode([Series(UP, [(0, 1.0), (NOW, 2.0), (-5, 3.0), (late, 4.0)])]), now_ms=NOW)
    assert rows(written) == expected_rows([Series(UP, [(NOW, 2.0)])])
    assert (written.rejected, len(reasons(written))) == (3, 2)
    assert reasons(written)[0].startswith("2 samples, from 0 ms: the time is before 1970")
    assert "looks like" in reasons(parse(encode([Series(UP, [(NOW * 1000, 2.0)])]), now_ms=NOW))[0], now_s


def test_metadata_of_either_version_is_handed_on() -> None:
    one = remote_write.parse(request([], [(1, "up", "Whether it is up.", "bool"), (9, "x", "", "")]), now_ms=NOW)
    assert [(m.metric, m.type, m.help, m.unit) for m in one.metadata] == [
        ("up", "counter", "Whether it is up.", "bool"),
        ("x", "unknown", "", ""),
    ]
    two = remote_write.parse_v2(
        request_v2([Series(UP, [(NOW, 1.0)], metadata=(2, "Is it?", "bool"))]), now_ms=NOW, cache=SeriesCache()
    )
    assert [(m.metric, m.type, m.help, m.unit) for m in two.metadata] == [("up", "gauge", "Is it?", "bool")]


DAMAGED = {
    "cut off": request([Series(UP, [(NOW, 1.0)])])[:-3],
    "a length beyond the end": b"\x0a\x7f\x0a",
    "a length inside beyond its message": part(1, b"\x12\x20\x09"),
    "a number of eleven bytes": b"\x0a" + b"\x80" * 10 + b"\x01",
    "a number over 64 bits": b"\x08" + b"\xff" * 9 + b"\x02",
    "a tag that is cut off": b"\x80",
    "a group": b"\x0b\x0c",
    "field 0": b"\x02\x00",
    "a label that is damaged": part(1, part(1, b"\x0a\x7fx") + part(2, sample(NOW, 1.0))),
    "a sample that is damaged": part(1, part(1, label(*UP[0])) + part(2, b"\x09\x00")),
    "a time that is cut off": part(1, part(1, label(*UP[0])) + part(2, b"\x10\x80")),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_bytes_that_are_no_protobuf_are_rejected_completely(case: str) -> None:
    with pytest.raises(BadMessage, match="remote write"):
        remote_write.parse(DAMAGED[case], now_ms=NOW)


def test_an_empty_request_is_one_without_samples() -> None:
    assert [len(rows(parse(b"", now_ms=NOW))) for _, parse in (ONE, TWO)] == [0, 0]


def test_too_many_series_are_rejected_before_they_are_read() -> None:
    with pytest.raises(LimitExceeded, match="too many series"):
        remote_write.parse(b"\x0a\x00" * (MESSAGE_SERIES_MAX + 1), now_ms=NOW)


def test_too_many_samples_are_rejected_before_they_are_read() -> None:
    with pytest.raises(LimitExceeded, match="too many samples"):
        remote_write.parse(part(1, b"\x12\x00" * 1_000_001), now_ms=NOW)


def test_references_that_spell_more_than_a_body_may_are_rejected() -> None:
    symbols = b"".join(part(4, text) for text in ("", "__name__", "up", "l", "v" * LABEL_VALUE_BYTES_MAX))
    series = part(5, part(1, b"\x01\x02" + b"\x03\x04" * 60))
    with pytest.raises(LimitExceeded, match="bytes of labels"):
        remote_write.parse_v2(symbols + series * 2_500, now_ms=NOW)


def test_no_more_rejections_are_listed_than_fit_an_answer() -> None:
    bad = [Series([("job", str(n))], [(NOW, 1.0)]) for n in range(REJECTIONS_MAX + 20)]
    written = remote_write.parse(request(bad), now_ms=NOW)
    assert (len(reasons(written)), written.rejected) == (REJECTIONS_MAX, REJECTIONS_MAX + 20)
