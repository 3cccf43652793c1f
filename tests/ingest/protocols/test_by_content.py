"""Claims about bodies from the queue: what is read together has the results that each body has alone."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.protocols import by_content
from ingest.protocols.by_content import QueuedBody
from ingest.protocols.influx import joined
from ingest.protocols.registry import INFLUX, PROTOCOLS, Protocol
from ingest.routing import LINES_TYPE
from spm.wire import Parsed
from tests.support.messages import message

NOW_MS = 1_700_000_000_000
LISTS = b'[{"values":[1],"dsnames":["value"],"time":1700000000,"host":"h","plugin":"load","type":"load"}]'
COLUMNS = message(1).to_bytes()
BODIES = [
    *(b"m,h=a v=1,w=2 1700000000000\n", b"m v=1\n", b"m v=1 1700000000000000000\nbad\n", b"", b"\xff", b"[1", b"{}"),
    *(LISTS, LISTS[:-1], COLUMNS, COLUMNS[:-1]),
]
ANY_BODY = st.builds(
    QueuedBody, st.sampled_from(BODIES), st.sampled_from([LINES_TYPE, "", "application/json"]), st.booleans()
)


def described(result: Parsed | Exception) -> object:
    """Everything a result says, in a form that can be compared."""
    if isinstance(result, Exception):
        return type(result), str(result)
    forms = [result.series.canonical(int(number)) for number in result.series_index]
    return forms, result.ts.tolist(), result.values.tolist(), result.timeless, result.rejections, result.rejected


def alone(body: QueuedBody) -> object:
    try:
        return described(by_content.parse(body.raw, body.content_type, NOW_MS))
    except Exception as error:
        return described(error)


@given(st.lists(ANY_BODY, max_size=12))
def test_each_body_has_the_result_that_it_has_alone(bodies: list[QueuedBody]) -> None:
    assert [described(result) for result in by_content.parse_many(bodies, NOW_MS)] == [alone(body) for body in bodies]


def test_fault_of_ours_in_reading_bodies_together_costs_none_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = [QueuedBody(body, LINES_TYPE) for body in BODIES]

    def fail(bodies: Sequence[object]) -> None:
        raise ZeroDivisionError("ours")

    monkeypatch.setattr(joined, "parse_many", fail)
    assert [described(result) for result in by_content.parse_many(bodies, NOW_MS)] == [alone(body) for body in bodies]


@pytest.mark.parametrize(
    ("body", "content_type", "protocol", "unit"),
    [
        (b"m v=1 1\n", LINES_TYPE, "influx", "ms"),
        (b"m v=1 1\n", "", "influx", "ns"),
        (b"m v=1 1\n", "text/plain", "influx", "ns"),
        (LISTS, "", "collectd", "s"),
        (LISTS, LINES_TYPE, "collectd", "s"),
        (COLUMNS, LINES_TYPE, "columns", "ms"),
    ],
)
def test_protocol_is_told_by_the_beginning_and_the_unit_of_lines_by_the_content_type(
    body: bytes, content_type: str, protocol: str, unit: str
) -> None:
    one = QueuedBody(body, content_type)
    assert (one.protocol.name, one.unit) == (protocol, unit)


@pytest.mark.parametrize("over", [False, True])
def test_names_of_an_app_over_its_quota_stay_out_of_the_common_cache(
    over: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = list[bool]()

    def parse(body: bytes, *, now_ms: int, over_quota: bool = False) -> Parsed:
        heard.append(over_quota)
        return INFLUX.parse(b"m v=1", now_ms=now_ms)

    own = Protocol("own", parse, recognises=lambda body: body.startswith(b"own"))
    monkeypatch.setattr(by_content, "PROTOCOLS", (*PROTOCOLS, own))
    [result] = by_content.parse_many([QueuedBody(b"own", "", over)], NOW_MS)
    assert isinstance(result, Parsed)
    assert heard == [over]
