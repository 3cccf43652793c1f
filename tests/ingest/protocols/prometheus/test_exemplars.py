"""Exemplars of remote write and of OpenMetrics: kept, or counted with the reason, and never at a sample's cost."""

from collections.abc import Sequence

import pytest

from ingest.exemplars.limits import EXEMPLAR_LABEL_CHARS_MAX, EXEMPLARS_MESSAGE_MAX
from ingest.protocols.common import exemplars as common
from ingest.protocols.common import naming
from ingest.protocols.common.series_cache import SeriesCache
from ingest.protocols.grouping_labels import add_labels
from ingest.protocols.prometheus import remote_write
from ingest.protocols.prometheus import text as prometheus_text
from spm.limits import FUTURE_MS
from spm.wire import Parsed, parse_canonical
from tests.ingest.protocols.prometheus.test_remote_write import BOTH, NOW, UP, Form, expected_rows, reasons, rows
from tests.ingest.protocols.remote_bodies import Pair, Series, label, part, real, request, varint, whole

TRACE = [("trace_id", "abc")]
Shown = tuple[str, dict[str, str], int, float, dict[str, str]]


def shown(parsed: Parsed) -> list[Shown]:
    """The exemplars: metric and labels of the series, time, value, own labels."""
    return [(*parse_canonical(one.series), one.ts, one.value, dict(one.labels)) for one in parsed.exemplars]


@BOTH
def test_exemplars_are_kept_with_their_series_whether_that_is_new_or_known(form: Form) -> None:
    encode, parse = form
    cache = SeriesCache()
    other = [("__name__", "other"), ("le", "+Inf")]
    series = [Series(UP, [(NOW, 1.0)], exemplars=[(TRACE, 0.5, NOW - 1), ([], -1.5, NOW)])]
    series += [Series(other, exemplars=[([*TRACE, ("a", "b")], 7.0, NOW - 2)])]
    for _ in range(2):
        written = parse(encode(series), now_ms=NOW, cache=cache)
        assert shown(written) == [
            ("up", {"job": "node"}, NOW - 1, 0.5, {"trace_id": "abc"}),
            ("up", {"job": "node"}, NOW, -1.5, {}),
            ("other", {"le": "+Inf"}, NOW - 2, 7.0, {"a": "b", "trace_id": "abc"}),
        ]
        assert (rows(written), written.rejections) == (expected_rows(series[:1]), ())
        assert len(written.series) == 1, "a series without samples is not registered for its exemplars"


@BOTH
@pytest.mark.parametrize(
    ("labels", "at_ms", "reason"),
    [
        ([("trace_id", "x" * EXEMPLAR_LABEL_CHARS_MAX)], NOW, common.TOO_LONG),
        (TRACE, 0, common.NO_TIME),
        (TRACE, NOW + FUTURE_MS + 1, "the time is more than 24 h ahead"),
        (TRACE * 2, NOW, naming.LABEL_REPEATED),
        ([("", "x")], NOW, naming.NO_LABEL_NAME),
    ],
)
def test_a_bad_exemplar_is_counted_and_costs_no_sample_and_no_other_exemplar(
    form: Form, labels: Sequence[Pair], at_ms: int, reason: str
) -> None:
    encode, parse = form
    series = [Series(UP, [(NOW, 1.0)], exemplars=[(labels, 1.0, at_ms), (TRACE, 2.0, NOW)])]
    written = parse(encode(series), now_ms=NOW)
    assert (rows(written), written.rejected) == (expected_rows(series), 0)
    assert [one.value for one in written.exemplars] == [2.0]
    assert reasons(written)[0].startswith("exemplars left out (1), the samples beside them kept: ")
    assert reason in reasons(written)[0]


@pytest.mark.parametrize(
    ("version", "damaged"),
    [
        (1, part(1, b"\x0a\x7f")),
        (1, b"\xff" * 11),
        (2, part(1, varint(99) + varint(0))),
        (2, part(1, varint(0))),
        (2, part(1, b"\x80")),
    ],
    ids=["a label cut off", "no field", "a symbol that is not there", "a name without value", "a number cut off"],
)
def test_a_damaged_exemplar_costs_itself_alone(version: int, damaged: bytes) -> None:
    if version == 1:
        body = part(1, part(1, label("__name__", "up")) + part(2, real(1, 1.0) + whole(2, NOW)) + part(3, damaged))
        written = remote_write.parse(body, now_ms=NOW)
    else:
        names = b"".join(part(4, text) for text in ("", "__name__", "up"))
        inner = part(1, varint(1) + varint(2)) + part(2, real(1, 1.0) + whole(2, NOW)) + part(4, damaged)
        written = remote_write.parse_v2(names + part(5, inner), now_ms=NOW)
    assert (len(written.ts), written.rejected, written.exemplars) == (1, 0, ())
    assert common.UNREADABLE in reasons(written)[0]


def test_exemplars_beyond_the_bound_of_a_message_are_counted() -> None:
    many = [(TRACE, float(n), NOW) for n in range(EXEMPLARS_MESSAGE_MAX - 1)]
    written = remote_write.parse(
        request([Series(UP, [(NOW, 1.0)], exemplars=many), Series(UP, exemplars=many)]), now_ms=NOW
    )
    count = len(written.exemplars)
    assert count == EXEMPLARS_MESSAGE_MAX
    assert reasons(written)[0].startswith(f"exemplars left out ({EXEMPLARS_MESSAGE_MAX - 2:,})")
    assert common.TOO_MANY in reasons(written)[0]


def test_exemplars_of_a_rejected_series_go_with_it() -> None:
    written = remote_write.parse(request([Series([("job", "a")], exemplars=[(TRACE, 1.0, NOW)])]), now_ms=NOW)
    assert (written.exemplars, written.rejected) == ((), 1)


def read_text(text: str, *, seconds: bool = True) -> Parsed:
    return prometheus_text.parse(text.encode(), now_ms=NOW, seconds=seconds, cache=SeriesCache())


@pytest.mark.parametrize(
    ("line", "exemplar"),
    [
        ('m_bucket{le="1"} 3 5 # {trace_id="x"} 0.5 4', ("m_bucket", {"le": "1"}, 4_000, 0.5, {"trace_id": "x"})),
        ('m 3 5 # {trace_id="x"} 0.5', ("m", {}, 5_000, 0.5, {"trace_id": "x"})),
        ('m 3 # {trace_id="x",a="b c"} 0.5', ("m", {}, NOW, 0.5, {"trace_id": "x", "a": "b c"})),
        ('m 3 # {trace_id="x"} 0.5 1.5', ("m", {}, 1_500, 0.5, {"trace_id": "x"})),
        ("m 3 # {} +Inf", ("m", {}, NOW, float("inf"), {})),
    ],
)
def test_an_exemplar_of_open_metrics_has_the_time_of_its_sample_unless_it_has_its_own(
    line: str, exemplar: Shown
) -> None:
    parsed = read_text(line)
    assert (shown(parsed), len(parsed.ts), parsed.rejections) == ([exemplar], 1, ())


@pytest.mark.parametrize("exemplar", ["x", "{a=b} 1", '{a="b"}', '{a="b"} one', '{a="b"} 1 2 3', '{"a"} 1', "{ 1"])
def test_a_bad_exemplar_of_open_metrics_costs_no_line(exemplar: str) -> None:
    parsed = read_text(f"m 3 5 # {exemplar}\nn 1")
    assert (len(parsed.ts), parsed.rejected, parsed.exemplars) == (2, 0, ())
    assert len(parsed.rejections) == 1


def test_labels_of_an_address_stand_on_the_series_of_exemplars() -> None:
    parsed = add_labels(read_text('m{job="a"} 3 # {trace_id="x"} 0.5'), {"job": "j", "k": "v"})
    assert shown(parsed) == [("m", {"job": "j", "k": "v"}, NOW, 0.5, {"trace_id": "x"})]
