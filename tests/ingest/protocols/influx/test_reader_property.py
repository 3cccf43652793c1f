"""The fast reader of line protocol equals the plain one, bit for bit, on generated and on damaged input."""

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ingest.protocols.common.series_cache import SeriesCache
from ingest.protocols.influx.reader import parse
from spm.limits import REJECTIONS_MAX
from spm.wire import Parsed, metric_id, metric_of, series_id
from tests.ingest.protocols.influx import reference

NOW_MS = 1_700_000_000_000
COMMON = SeriesCache()  # shared by all examples, so that the kernel reads the known series of later ones

names = st.sampled_from(["cpu", "m", "a b", "disk,x", "ä", "value", "a=b", "back\\slash", "idle", 'q"q', "__name__"])
texts = st.text(st.sampled_from('abc0 ,=\\"#\t\rä€'), min_size=0, max_size=6)
numbers = st.one_of(
    st.integers(-(2**65), 2**65).map(lambda n: f"{n}i"),
    st.integers(-10, 2**65).map(lambda n: f"{n}u"),
    st.integers(-100, 100).map(lambda n: f"{n}i"),
    st.floats(allow_nan=True, allow_infinity=True).map(repr),
    st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-1000, max_value=1000).map(str),
    st.from_regex(r"\A[+-]?[0-9]{0,22}\.?[0-9]{0,22}([eE][+-]?[0-9]{1,3})?\Z"),
    st.sampled_from(
        [
            "t",
            "f",
            "true",
            "false",
            "T",
            "TRUE",
            "True",
            "F",
            "False",
            "FALSE",
            "tru",
            "truth",
            "-0",
            "+1",
            "-",
            "1e-23",
            "3e23",
            "-1e22",
            "5e-22",
            ".5",
            "1.",
            ".",
        ]
    ),
)
strings = st.text(st.sampled_from('ab "\\,=\n'), max_size=8).map(lambda s: f'"{s}"')
times = st.one_of(
    st.just(""),
    st.integers(0, 2 * NOW_MS * 10**6).map(lambda n: f" {n}"),
    st.integers(NOW_MS - 5, NOW_MS + 5).map(lambda ms: f" {ms * 10**6}"),
    st.sampled_from([" 0", " -1", " 999999", " +1700000000000000000", f" {10**20}", " 1.5", " x", "  5000000 ", " "]),
)


def escaped(text: str) -> str:
    return text.replace(",", "\\,").replace("=", "\\=").replace(" ", "\\ ")


@st.composite
def lines(draw: st.DrawFn) -> str:
    name = draw(st.one_of(names.map(escaped), names, texts))
    tags = draw(
        st.lists(st.tuples(st.one_of(names.map(escaped), texts), st.one_of(texts, texts.map(escaped))), max_size=3)
    )
    fields = draw(st.lists(st.tuples(st.one_of(names.map(escaped), names), st.one_of(numbers, strings)), max_size=4))
    head = name + "".join(f",{key}={value}" for key, value in tags)
    return head + draw(st.sampled_from([" ", "  ", ""])) + ",".join(f"{k}={v}" for k, v in fields) + draw(times)


plain_lines = st.builds(
    "cpu,host={} {}{}".format,
    st.integers(0, 3),
    st.lists(st.tuples(st.sampled_from(["user", "idle", "value"]), numbers).map("=".join), min_size=1, max_size=4).map(
        ",".join
    ),
    times,
)
bodies = st.lists(
    st.one_of(lines(), plain_lines, plain_lines, st.sampled_from(["", "# note", " ", "\t#"])), max_size=8
).flatmap(lambda rows: st.sampled_from(["\n", "\r\n"]).map(lambda end: end.join(rows).encode("utf-8", "replace")))


def samples(parsed: Parsed) -> list[tuple[bytes, int, int]]:
    forms = [parsed.series.canonical(i) for i in range(len(parsed.series))]
    rows = zip(parsed.series_index, parsed.ts, parsed.values.view(np.int64), strict=True)
    return [(forms[i], int(ts), int(bits)) for i, ts, bits in rows]


def assert_equal(body: bytes, cache: SeriesCache, precision: str = "ns") -> None:
    expected = reference.read(body, NOW_MS, precision)
    parsed = parse(body, now_ms=NOW_MS, precision=precision, cache=cache)
    assert samples(parsed) == expected.samples
    rejections = expected.rejected[:REJECTIONS_MAX] + expected.texts[:1]
    assert [(r.line, r.reason, r.example) for r in parsed.rejections] == rejections
    assert (parsed.rejected, parsed.timeless) == (len(expected.rejected), expected.timeless)


def assert_table_sound(parsed: Parsed) -> None:
    forms = [parsed.series.canonical(i) for i in range(len(parsed.series))]
    assert len(set(forms)) == len(forms)
    assert list(map(series_id, forms)) == parsed.series.ids.tolist()
    assert [metric_id(metric_of(form)) for form in forms] == parsed.series.metrics.tolist()
    assert sorted(set(parsed.series_index.tolist())) == list(range(len(forms)))


@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(bodies, st.sampled_from(list(reference.NANOSECONDS)))
@example(b'm v="a\nb",w=1 5000000', "ns")
@example(b'm v="a\nx y=1', "ns")
@example(b'm v="a\nb",w=bad\nn v=1', "ns")
@example(b"cpu v=1\r\ncpu v=2 5000000\r\n\r\n", "ns")
@example(b"cpu\\ v=1\ncpu\\\\ v=1\ncpu,a=b\\ v=2", "ns")
@example(b"m v=9223372036854775807i,w=18446744073709551615u,x=-9223372036854775808i,y=9007199254740993i", "ns")
def test_fast_reader_equals_the_plain_one(body: bytes, precision: str) -> None:
    assert_equal(body, COMMON, precision)
    assert_equal(body, COMMON, precision)  # now every series is known


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(bodies, st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255), st.sampled_from("rid")), max_size=6))
def test_fast_reader_equals_the_plain_one_on_damaged_bodies(body: bytes, damages: list[tuple[int, int, str]]) -> None:
    damaged = bytearray(body)
    for at, byte, kind in damages:
        place = at % (len(damaged) + 1)
        damaged[place : place + (kind != "i")] = b"" if kind == "d" else bytes([byte])
    assert_equal(bytes(damaged), COMMON)


@settings(max_examples=200, deadline=None)
@given(bodies)
def test_table_names_each_series_once_with_its_ids(body: bytes) -> None:
    assert_table_sound(parse(body, now_ms=NOW_MS, cache=COMMON))


@settings(max_examples=1000, deadline=None)
@given(st.one_of(numbers, st.floats(allow_nan=False, allow_infinity=False).map(repr)))
def test_number_becomes_the_nearest_float64(number: str) -> None:
    assert_equal(f"m v=1\nm v={number}\n".encode(), COMMON)


@pytest.mark.proof
@settings(max_examples=100_000, deadline=None)
@given(bodies, st.binary(max_size=40), st.integers(0, 10_000))
def test_proof_fast_reader_equals_the_plain_one_at_length(body: bytes, splice: bytes, at: int) -> None:
    place = at % (len(body) + 1)
    assert_equal(body[:place] + splice + body[place:], COMMON)
