"""Line protocol by examples: the samples of each form, and the reason of each fault."""

import threading

import numpy as np
import pytest

from ingest.protocols.common import line_reader, naming, series_cache
from ingest.protocols.common.series_cache import SeriesCache
from ingest.protocols.common.series_kernels import find_item
from ingest.protocols.influx import exact
from ingest.protocols.influx.reader import parse
from spm import limits
from spm.errors import BadMessage, LimitExceeded
from spm.wire import Parsed, parse_canonical

NOW_MS = 1_700_000_000_000


def read(text: str | bytes, precision: str = "ns") -> Parsed:
    body = text if isinstance(text, bytes) else text.encode()
    return parse(body, now_ms=NOW_MS, cache=SeriesCache(), precision=precision)


def only(parsed: Parsed) -> tuple[str, dict[str, str], int, float]:
    """Metric, labels, time and value of the only sample."""
    assert len(parsed.ts) == 1, parsed.rejections
    return *parse_canonical(parsed.series.canonical(0)), int(parsed.ts[0]), float(parsed.values[0])


@pytest.mark.parametrize(
    ("line", "metric", "labels"),
    [
        pytest.param("cpu user=1 5000000", "cpu_user", {}, id="measurement and field joined"),
        pytest.param("cpu value=1 5000000", "cpu", {}, id="field value adds nothing"),
        pytest.param("cpu,b=2,a=1 value=1 5000000", "cpu", {"a": "1", "b": "2"}, id="tags"),
        pytest.param(r"a\,b\ c,x\=y=p\ q\,r\=s value=1 5000000", "a,b c", {"x=y": "p q,r=s"}, id="escapes"),
        pytest.param(r"m,path=C:\dir value=1 5000000", "m", {"path": r"C:\dir"}, id="other backslashes stay"),
        pytest.param("größe,ort=Köln value=1 5000000", "größe", {"ort": "Köln"}, id="text beyond ASCII"),
        pytest.param('m,q="a" value=1 5000000', "m", {"q": '"a"'}, id="quotes in tags are part of them"),
        pytest.param("  m  value=1   5000000  ", "m", {}, id="more spaces than needed"),
        pytest.param("m value=1 5000000\r", "m", {}, id="carriage return before the line's end"),
    ],
)
def test_line_names_its_series(line: str, metric: str, labels: dict[str, str]) -> None:
    assert only(read(line)) == (metric, labels, 5, 1.0)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("1.5", 1.5, id="float"),
        pytest.param("-0", -0.0, id="negative zero"),
        pytest.param("-0i", 0.0, id="an integer knows no negative zero"),
        pytest.param("1e-7", 1e-7, id="exponent"),
        pytest.param(".5", 0.5, id="no digit before the point"),
        pytest.param("98.47328244274809", 98.47328244274809, id="seventeen digits"),
        pytest.param("5e-324", 5e-324, id="smallest subnormal"),
        pytest.param("9007199254740993i", 9007199254740992.0, id="beyond 2^53 the nearest"),
        pytest.param("9007199254740995i", 9007199254740996.0, id="beyond 2^53 ties to even"),
        pytest.param("-9223372036854775808i", -(2.0**63), id="least 64-bit integer"),
        pytest.param("18446744073709551615u", 2.0**64, id="greatest unsigned integer"),
        *(pytest.param(t, 1.0, id=f"boolean {t}") for t in ("t", "T", "true", "True", "TRUE")),
        *(pytest.param(f, 0.0, id=f"boolean {f}") for f in ("f", "F", "false", "False", "FALSE")),
    ],
)
def test_value_becomes_the_same_float_by_both_ways(text: str, value: float) -> None:
    cache = SeriesCache()
    exact, compiled = (parse(f"m v={text} 5000000".encode(), now_ms=NOW_MS, cache=cache) for _ in range(2))
    assert exact.values.tobytes() == compiled.values.tobytes() == np.float64(value).tobytes()


@pytest.mark.parametrize(
    ("time", "precision", "ms"),
    [
        pytest.param("1699999999999999999", "", 1_699_999_999_999, id="nanoseconds rounded down"),
        pytest.param("1699999999999999", "u", 1_699_999_999_999, id="microseconds"),
        pytest.param("1699999999999", "ms", 1_699_999_999_999, id="milliseconds"),
        pytest.param("1699999999", "s", 1_699_999_999_000, id="seconds"),
        pytest.param("28333333", "m", 1_699_999_980_000, id="minutes"),
        pytest.param("472222", "h", 1_699_999_200_000, id="hours"),
        pytest.param("1", "ms", 1, id="the first moment"),
        pytest.param(str(NOW_MS + limits.FUTURE_MS), "ms", NOW_MS + limits.FUTURE_MS, id="the last moment"),
    ],
)
def test_time_is_kept_in_ms_by_both_ways(time: str, precision: str, ms: int) -> None:
    cache = SeriesCache()
    parsed = [parse(f"m v=1 {time}\n".encode(), now_ms=NOW_MS, precision=precision, cache=cache) for _ in range(2)]
    assert [p.ts.tolist() for p in parsed] == [[ms], [ms]]


def test_line_without_time_gets_the_servers_and_is_counted() -> None:
    parsed = read("m a=1,b=2\nm a=3 5000000")
    assert parsed.ts.tolist() == [NOW_MS, NOW_MS, 5]
    assert parsed.timeless == 2


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        pytest.param("m", exact.NO_FIELDS, id="nothing but a name"),
        pytest.param("m,a=b ", exact.NO_FIELDS, id="no field behind the tags"),
        pytest.param(",a=b v=1", naming.NO_METRIC, id="no measurement"),
        pytest.param("m,a=1,a=2 v=1", naming.LABEL_REPEATED, id="a tag twice"),
        pytest.param("m,a= v=1", naming.NO_LABEL_VALUE, id="a tag without value"),
        pytest.param("m,a v=1", naming.NO_LABEL_VALUE, id="a tag without equals"),
        pytest.param("m,=b v=1", naming.NO_LABEL_NAME, id="a tag without name"),
        pytest.param("m,a=b=c v=1", exact.TAG_EQUALS, id="an equals too many"),
        pytest.param("m,__name__=x v=1", naming.LABEL_RESERVED, id="the reserved tag"),
        pytest.param("m v", exact.NO_EQUALS, id="a field without equals"),
        pytest.param("m =1", exact.NO_FIELD_NAME, id="a field without name"),
        pytest.param("m v=", exact.NO_VALUE, id="a field without value"),
        pytest.param("m v=1,", exact.NO_EQUALS, id="a comma too many"),
        pytest.param("m v=abc", exact.NOT_A_VALUE, id="a word for a value"),
        pytest.param("m v=1.5i", exact.NOT_A_VALUE, id="an integer with a fraction"),
        pytest.param('m v="abc', exact.OPEN_STRING, id="an open string"),
        pytest.param('m v="a"b', exact.AFTER_STRING, id="text after a string"),
        pytest.param("m v=1 1.5", exact.NOT_A_TIME, id="a time with a fraction"),
        pytest.param("m v=1 now", exact.NOT_A_TIME, id="a word for a time"),
        pytest.param("m v=1 0", exact.TIME_BEFORE_1970, id="time zero"),
        pytest.param("m v=1 -5", exact.TIME_BEFORE_1970, id="a negative time"),
        pytest.param("m v=1 1700000000", exact.TIME_TOO_FAR_AHEAD, id="ms"),
        pytest.param(b"m,a=\xff v=1", naming.NOT_UTF8, id="bytes that are no text"),
        pytest.param("m" * (limits.METRIC_BYTES_MAX + 1) + " value=1", naming.METRIC_TOO_LONG, id="a long name"),
    ],
)
def test_bad_line_rejects_itself_with_number_and_reason(line: str | bytes, reason: str) -> None:
    raw = line if isinstance(line, bytes) else line.encode()
    precision = "ms" if reason is not exact.TIME_TOO_FAR_AHEAD else "s"
    if reason is exact.TIME_TOO_FAR_AHEAD:
        raw = raw.replace(b"1700000000", b"1800000000")
    parsed = read(b"first v=1\n" + raw + b"\nlast v=2\n", precision=precision)
    assert parsed.values.tolist() == [1.0, 2.0]
    assert [(r.line, r.reason) for r in parsed.rejections] == [(2, reason)]
    assert parsed.rejections[0].example == raw.decode("utf-8", "replace")[: limits.REJECTION_EXAMPLE_CHARS_MAX]


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        pytest.param('v="text"', exact.STRING_FIELD, id="a string"),
        pytest.param('v="a, b=c \\" d"', exact.STRING_FIELD, id="a string with all delimiters"),
        pytest.param('v="two\nlines"', exact.STRING_FIELD, id="a string over two lines"),
        pytest.param("v=NaN", exact.NOT_FINITE, id="not a number"),
        pytest.param("v=-inf", exact.NOT_FINITE, id="an infinity"),
        pytest.param("v=1e999", exact.TOO_LARGE, id="a float beyond float64"),
        pytest.param("v=9223372036854775808i", exact.TOO_LARGE, id="an integer beyond 64 bits"),
        pytest.param("v" * limits.METRIC_BYTES_MAX + "=1", naming.METRIC_TOO_LONG, id="a long name"),
    ],
)
def test_field_that_is_no_sample_leaves_the_others_of_its_line(field: str, reason: str) -> None:
    parsed = read(f"m a=1,{field},b=2 5000000\nm c=3 5000000")
    assert parsed.values.tolist() == [1.0, 2.0, 3.0]
    assert [(r.line, r.reason) for r in parsed.rejections] == [(1, reason)]


def test_lines_are_numbered_through_comments_blanks_and_strings_over_lines() -> None:
    parsed = read('# note\n\nm s="a\nb\nc",v=1\r\n\r\nm v=x\n')
    assert [(r.line, r.reason) for r in parsed.rejections] == [(7, exact.NOT_A_VALUE), (3, exact.STRING_FIELD)]


def test_texts_beside_numbers_reject_nothing_and_the_first_is_reported() -> None:
    parsed = read('m v=1,s="a"\nm s="b",v=2\nm v=3')
    assert (parsed.values.tolist(), parsed.rejected) == ([1.0, 2.0, 3.0], 0)
    assert [(r.line, r.reason, r.example) for r in parsed.rejections] == [(1, exact.STRING_FIELD, 's="a"')]


def test_a_line_of_nothing_but_texts_is_rejected() -> None:
    parsed = read('m s="a",t="b"\nm v=1')
    assert (len(parsed.ts), parsed.rejected, [r.line for r in parsed.rejections]) == (1, 2, [1, 1])


def test_open_quote_does_not_swallow_the_lines_after_it() -> None:
    parsed = read('m a="open\nm b=1\nm c="closed",d=2\n')
    assert parsed.values.tolist() == [1.0, 2.0]


def test_spellings_of_one_series_are_one_series() -> None:
    cache = SeriesCache()
    for _ in range(2):
        parsed = parse(b"m,a=1,b=2 v=1\nm,b=2,a=1 v=2\nm_v,b=2,a=1 value=3\n", now_ms=NOW_MS, cache=cache)
        assert parsed.series_index.tolist() == [0, 0, 0]
        assert len(parsed.series) == 1


def test_unknown_precision_is_rejected() -> None:
    with pytest.raises(BadMessage, match="precision"):
        read("m v=1", precision="fortnight")


def test_empty_body_holds_nothing() -> None:
    parsed = read("")
    assert (len(parsed.ts), len(parsed.series), parsed.rejected) == (0, 0, 0)


@pytest.mark.parametrize(
    ("count", "rejected"), [(limits.LABELS_MAX, 0), (limits.LABELS_MAX + 1, 1)], ids=["at the limit", "one over"]
)
def test_the_number_of_tags_is_limited(count: int, rejected: int) -> None:
    tags = "".join(f",t{i}=x" for i in range(count))
    assert read(f"m{tags} v=1").rejected == rejected


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        pytest.param(limits.LABEL_NAME_BYTES_MAX, limits.LABEL_VALUE_BYTES_MAX, None, id="at the limits"),
        pytest.param(limits.LABEL_NAME_BYTES_MAX + 1, 1, naming.LABEL_NAME_TOO_LONG, id="name one over"),
        pytest.param(1, limits.LABEL_VALUE_BYTES_MAX + 1, naming.LABEL_VALUE_TOO_LONG, id="value one over"),
    ],
)
def test_tag_is_limited_in_length(name: int, value: int, reason: str | None) -> None:
    parsed = read(f"m,{'n' * name}={'v' * value} v=1")
    assert [r.reason for r in parsed.rejections] == [reason] * (reason is not None)


def test_rejections_are_listed_to_the_limit_and_all_counted() -> None:
    parsed = read("bad\n" * (limits.REJECTIONS_MAX + 1))
    assert (len(parsed.rejections), parsed.rejected) == (limits.REJECTIONS_MAX, limits.REJECTIONS_MAX + 1)


def test_string_over_lines_is_limited() -> None:
    inside = "x" * (limits.STRING_BYTES_MAX - 3)
    assert read(f'm a="\n{inside}",b=1').rejections[0].reason == exact.STRING_FIELD
    assert read(f'm a="\n{inside}x",b=1').rejections[0].reason == exact.OPEN_STRING


@pytest.mark.parametrize("ways", [1, 2], ids=["new series", "known series"])
def test_line_is_limited_in_length(ways: int) -> None:
    cache = SeriesCache()
    fields = "v=1," * 49_600 + "v=1"
    fits = "m,t=".ljust(limits.LINE_BYTES_MAX - len(fields) - 1, "x") + " " + fields
    for _ in range(ways):
        parsed = parse(f"{fits}\n{fits}1\nm v=2\n".encode(), now_ms=NOW_MS, cache=cache)
        assert [(r.line, r.reason) for r in parsed.rejections] == [(2, exact.LINE_TOO_LONG)]
        assert (len(parsed.ts), parsed.values[-1]) == (49_602, 2.0)


def test_line_of_strings_over_lines_is_limited_in_length() -> None:
    parsed = read('m a="\n",' + "v=1," * 60_000 + "w=1\nm v=2")
    assert parsed.rejections[0].reason == exact.LINE_TOO_LONG
    assert parsed.values.tolist() == [2.0]


def test_body_with_too_many_lines_is_rejected_completely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_reader, "MESSAGE_LINES_MAX", 3)
    assert len(read("m v=1\n" * 3).ts) == 3
    with pytest.raises(LimitExceeded, match="lines"):
        read("m v=1\n" * 4)


def test_body_with_too_many_samples_is_rejected_completely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_reader, "MESSAGE_SAMPLES_MAX", 4)
    assert len(read("m a=1,b=2\n" * 2).ts) == 4
    with pytest.raises(LimitExceeded, match="samples"):
        read("m a=1,b=2\n" * 2 + "m a=1\n")


def test_body_with_too_much_series_text_is_rejected_completely_known_or_new(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = SeriesCache()
    body = b"measurement f=1,g=2"
    parse(body, now_ms=NOW_MS, cache=cache)
    monkeypatch.setattr(series_cache, "MESSAGE_SERIES_BYTES_MAX", 20)
    monkeypatch.setattr(line_reader, "MESSAGE_SERIES_BYTES_MAX", 20)
    for one in (cache, SeriesCache()):
        with pytest.raises(LimitExceeded, match="series names"):
            parse(body, now_ms=NOW_MS, cache=one)


def test_full_cache_begins_a_new_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series_cache, "SERIES_CACHE_ITEMS_MAX", 3)
    cache = SeriesCache()
    first = cache.generation()
    for number in range(3):
        parse(f"m f{number}=1".encode(), now_ms=NOW_MS, cache=cache)
    assert first.full
    assert cache.generation() is not first
    assert only(parse(b"m f0=1 5000000", now_ms=NOW_MS, cache=cache))[0] == "m_f0"


def test_view_does_not_know_what_was_added_after_it() -> None:
    cache = SeriesCache()
    parse(b"m a=1", now_ms=NOW_MS, cache=cache)
    view, name = cache.generation().view(), np.frombuffer(b"b", np.uint8)
    parse(b"m b=1", now_ms=NOW_MS, cache=cache)
    assert find_item(view, 0, name, 0, 1) == -1
    assert find_item(cache.generation().view(), 0, name, 0, 1) == 1


def test_threads_that_share_the_cache_see_complete_series() -> None:
    cache = SeriesCache()
    wrong: list[str] = []

    def work(seed: int) -> None:
        for round_number in range(60):
            hosts = [(seed * 7 + round_number * 13 + i) % 400 for i in range(20)]
            body = "".join(f"m,host=h{h} a={h},b={h} 5000000\n" for h in hosts).encode()
            parsed = parse(body, now_ms=NOW_MS, cache=cache)
            forms = [parse_canonical(parsed.series.canonical(i)) for i in parsed.series_index]
            expected = [(f"m_{f}", {"host": f"h{h}"}) for h in hosts for f in "ab"]
            if forms != expected or parsed.values.tolist() != [float(h) for h in hosts for _ in "ab"]:
                wrong.append(body.decode())

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
