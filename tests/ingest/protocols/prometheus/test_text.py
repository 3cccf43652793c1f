"""Prometheus' text form and OpenMetrics: what is read, what rejects its line and why, and that both readers agree."""

import math
import os
import random
from functools import partial

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from ingest.protocols.common import line_reader, naming
from ingest.protocols.common.series_cache import SeriesCache
from ingest.protocols.common.times import TIME_BEFORE_1970, TIME_TOO_FAR_AHEAD
from ingest.protocols.prometheus import text as prometheus_text
from ingest.protocols.prometheus.text import parse
from spm import limits
from spm.errors import LimitExceeded
from spm.wire import Parsed, parse_canonical
from tests.ingest.protocols.cpu import timed

NOW_MS = 1_700_000_000_000
COMMON = SeriesCache()

Sample = tuple[str, dict[str, str], float, int]


def samples(parsed: Parsed) -> list[Sample]:
    forms = [parse_canonical(parsed.series.canonical(i)) for i in range(len(parsed.series))]
    rows = zip(parsed.series_index.tolist(), parsed.values.tolist(), parsed.ts.tolist(), strict=True)
    return [(*forms[index], value, ts) for index, value, ts in rows]


def read(text: str | bytes, *, seconds: bool = False) -> Parsed:
    """Read three times: with all series new, with all known, and with those of other tests."""
    body, own = text if isinstance(text, bytes) else text.encode(), SeriesCache()
    first, again, common = (parse(body, now_ms=NOW_MS, seconds=seconds, cache=cache) for cache in (own, own, COMMON))
    for other in (again, common):
        assert repr(samples(other)) == repr(samples(first))
        assert (other.rejections, other.rejected, other.timeless) == (first.rejections, first.rejected, first.timeless)
    return first


@pytest.mark.parametrize(
    ("line", "sample"),
    [
        pytest.param("up 1", ("up", {}, 1.0, NOW_MS), id="the least"),
        pytest.param("up 1 5", ("up", {}, 1.0, 5), id="with a time"),
        pytest.param('up{job="a"} 1.5e3 5', ("up", {"job": "a"}, 1500.0, 5), id="with a label"),
        pytest.param('up{job="a",} 1 5', ("up", {"job": "a"}, 1.0, 5), id="with a comma too many"),
        pytest.param('up { job = "a" , x = "b" }  1   5', ("up", {"job": "a", "x": "b"}, 1.0, 5), id="with spaces"),
        pytest.param('up{job="a"}\t1\t5', ("up", {"job": "a"}, 1.0, 5), id="with tabs"),
        pytest.param('up{job="a"}1 5', ("up", {"job": "a"}, 1.0, 5), id="without a space"),
        pytest.param(r'up{p="C:\\d\"e\"\n"} 1 5', ("up", {"p": 'C:\\d"e"\n'}, 1.0, 5), id="with escapes"),
        pytest.param('up{p="a}b,c=d # 1"} 1 5', ("up", {"p": "a}b,c=d # 1"}, 1.0, 5), id="with signs in quotes"),
        pytest.param('up{job=""} 1 5', ("up", {}, 1.0, 5), id="an empty label is none"),
        pytest.param('{"a.b","c d"="e"} 1 5', ("a.b", {"c d": "e"}, 1.0, 5), id="quoted names"),
        pytest.param('{__name__="a",b="c"} 1 5', ("a", {"b": "c"}, 1.0, 5), id="the name as a label"),
        pytest.param('rpc_bucket{le="+Inf"} 3 5', ("rpc_bucket", {"le": "+Inf"}, 3.0, 5), id="a histogram's bucket"),
        pytest.param("m +Inf 5", ("m", {}, math.inf, 5), id="infinity"),
        pytest.param("m -Inf 5", ("m", {}, -math.inf, 5), id="minus infinity"),
        pytest.param("m -0 5", ("m", {}, -0.0, 5), id="minus zero"),
        pytest.param("m 0.1 5\r", ("m", {}, 0.1, 5), id="a return"),
        pytest.param('m{a="ä€"} 1 5', ("m", {"a": "ä€"}, 1.0, 5), id="text beyond ASCII"),
    ],
)
def test_line_becomes_its_sample(line: str, sample: Sample) -> None:
    assert repr(samples(read(line))) == repr([sample])


def test_nan_is_kept_as_a_value() -> None:
    assert math.isnan(read("m NaN 5").values[0])


def test_comments_and_empty_lines_are_passed_over() -> None:
    parsed = read("# HELP m some text\n# TYPE m counter\n\nm 1 5\n  # a note\n# EOF\n")
    assert (samples(parsed), parsed.rejected) == ([("m", {}, 1.0, 5)], 0)


@pytest.mark.parametrize(
    ("line", "ms"),
    [("m 1 1700000000.123", 1_700_000_000_123), ("m 1 1.7e9", NOW_MS), ("m 1 0.001", 1), ("m 1 1700000000", NOW_MS)],
)
def test_times_of_open_metrics_are_seconds(line: str, ms: int) -> None:
    assert read(line, seconds=True).ts.tolist() == [ms]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        pytest.param("up", prometheus_text.NO_VALUE, id="no value"),
        pytest.param("up high", prometheus_text.NOT_A_VALUE, id="a word for a value"),
        pytest.param("up 5i", prometheus_text.NOT_A_VALUE, id="a value of line protocol"),
        pytest.param("up true", prometheus_text.NOT_A_VALUE, id="a boolean"),
        pytest.param("up 0x10", prometheus_text.NOT_A_VALUE, id="hexadecimal"),
        pytest.param("up 1e999", prometheus_text.TOO_LARGE, id="beyond float64"),
        pytest.param("up 1 now", prometheus_text.NOT_A_TIME, id="a word for a time"),
        pytest.param("up 1 1.5", prometheus_text.NOT_A_TIME, id="a time with a fraction"),
        pytest.param("up 1 0", TIME_BEFORE_1970, id="time zero"),
        pytest.param("up 1 -5", TIME_BEFORE_1970, id="a time before 1970"),
        pytest.param(f"up 1 {NOW_MS + limits.FUTURE_MS + 1}", TIME_TOO_FAR_AHEAD, id="a time too late"),
        pytest.param(
            f"up 1 {NOW_MS * 10**6}",
            f"{TIME_TOO_FAR_AHEAD} It looks like nanoseconds, read as milliseconds",
            id="nanoseconds",
        ),
        pytest.param("up 1 5 6", prometheus_text.TRAILING, id="a word too many"),
        pytest.param("cpu,host=a 1", prometheus_text.NO_NAME, id="line protocol"),
        pytest.param("1up 1", prometheus_text.NO_NAME, id="a name that begins with a digit"),
        pytest.param('up{job="a" 1', prometheus_text.BAD_LABELS, id="open labels"),
        pytest.param('up{job="a"', prometheus_text.OPEN_LABELS, id="labels that end the line"),
        pytest.param("up{job=a} 1", prometheus_text.BAD_LABELS, id="no quotes"),
        pytest.param('up{job="a} 1', prometheus_text.BAD_LABELS, id="open quotes"),
        pytest.param('up{a="b",a="c"} 1', naming.LABEL_REPEATED, id="a label twice"),
        pytest.param('up{__name__="b"} 1', naming.LABEL_RESERVED, id="two names"),
        pytest.param('{a="b"} 1', naming.NO_METRIC, id="no name"),
        pytest.param(b'up{a="\xff"} 1', naming.NOT_UTF8, id="bytes that are no text"),
        pytest.param("m" * (limits.METRIC_BYTES_MAX + 1) + " 1", naming.METRIC_TOO_LONG, id="a long name"),
        pytest.param('m{a="' + "x" * limits.LINE_BYTES_MAX + '"} 1', prometheus_text.LINE_TOO_LONG, id="a long line"),
    ],
)
def test_bad_line_rejects_itself_with_number_and_reason(line: str | bytes, reason: str) -> None:
    raw = line if isinstance(line, bytes) else line.encode()
    parsed = read(b"first 1\n" + raw + b"\nlast 2\n")
    assert parsed.values.tolist() == [1.0, 2.0]
    assert [(r.line, r.reason) for r in parsed.rejections] == [(2, reason)]


def test_body_with_too_many_lines_or_samples_is_rejected_completely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_reader, "MESSAGE_SAMPLES_MAX", 3)
    assert len(read("m 1\n" * 3).ts) == 3
    with pytest.raises(LimitExceeded, match="samples"):
        read("m 1\n" * 4)


names = st.sampled_from(["up", "http_requests_total", "a:b", "_x", "m"])
texts = st.text(st.sampled_from('ab{}"\\,=# \tä\n'), max_size=6)
numbers = st.one_of(
    st.floats().map(lambda v: repr(v).replace("inf", "Inf").replace("nan", "NaN")), st.integers(-9, 10**17).map(str)
)
labels = st.dictionaries(st.sampled_from(["job", "le", "code"]), texts, max_size=3)


def written(metric: str, own: dict[str, str], value: str, ms: int | None) -> str:
    def quoted(text: str) -> str:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    inside = ",".join(f'{name}="{quoted(text)}"' for name, text in own.items())
    return f"{metric}{{{inside}}} {value}" + ("" if ms is None else f" {ms}") if inside else f"{metric} {value}"


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(names, labels, numbers, st.one_of(st.none(), st.integers(1, NOW_MS))), min_size=1, max_size=8)
)
def test_what_is_written_is_read_as_prometheus_own_library_reads_it(
    rows: list[tuple[str, dict[str, str], str, int | None]],
) -> None:
    body = "".join(written(*row) + "\n" for row in rows)
    parsed = samples(read(body))
    theirs = [sample for family in text_string_to_metric_families(body) for sample in family.samples]
    for (metric, own, value, _), sample in zip(parsed, theirs, strict=True):
        assert (metric, own) == (sample.name, {name: text for name, text in sample.labels.items() if text})
        assert np.float64(value).tobytes() == np.float64(sample.value).tobytes()


SEEDS = (
    b'# TYPE rpc histogram\nrpc_bucket{le="0.5"} 3 5\nrpc_bucket{le="+Inf"} 4 5\nrpc_sum 1.5\nrpc_count 4\n',
    b'up{job="a",instance="b:1"} 1 1700000000000\n{"x.y","z w"="\\"q\\""} NaN\nm{a="b"} -1e-5 5 # {t="x"} 1 2\n# EOF',
)


def mutated(draw: random.Random, seeds: tuple[bytes, ...]) -> bytes:
    """Returns one of the seeds with a few bytes changed, removed, doubled or swapped with another seed's."""
    body = bytearray(draw.choice(seeds))
    for _ in range(draw.randrange(1, 8)):
        at, size = draw.randrange(len(body) + 1), draw.randrange(1, 12)
        piece = draw.choice((draw.randbytes(size), bytes(body[at : at + size]) * draw.randrange(3), b'"', b"}", b"\\"))
        body[at : at + draw.randrange(size + 1)] = piece
    return bytes(body)


def assert_bears_mutations(count: int, seconds: bool) -> None:
    draw, cache = random.Random(count), SeriesCache()
    for number in range(count):
        body = mutated(draw, SEEDS)
        parsed, duration_s = timed(partial(parse, body, now_ms=NOW_MS, seconds=seconds, cache=cache))
        assert duration_s < 1.0
        assert len(parsed.ts) == len(parsed.values) == len(parsed.series_index)
        if number % 10 == 0:
            assert parsed.places is not None
            lines = parsed.places(range(len(parsed.ts)))
            assert lines == sorted(lines)
            assert len(set(lines)) == len(parsed.ts)
            assert repr(samples(parsed)) == repr(
                samples(parse(body, now_ms=NOW_MS, seconds=seconds, cache=SeriesCache()))
            )


@pytest.mark.parametrize("seconds", [False, True], ids=["0.0.4", "OpenMetrics"])
def test_mutated_bodies_are_read_or_rejected_and_nothing_else(seconds: bool) -> None:
    assert_bears_mutations(10_000, seconds)


@pytest.mark.proof
@pytest.mark.parametrize("seconds", [False, True], ids=["0.0.4", "OpenMetrics"])
def test_proof_mutated_bodies_are_read_or_rejected_at_length(seconds: bool) -> None:
    assert_bears_mutations(int(os.environ.get("SPM_MUTATIONS", "1000000")), seconds)
