"""Endpoints for other servers: remote read with Prometheus' messages, and the newest samples as text."""

import contextlib
import struct
from typing import Any

import cramjam
import numpy as np
import pytest
from django.test import Client
from hypothesis import given, settings
from hypothesis import strategies as st

from spm import query
from spm.clock import SystemClock
from spm.errors import BadQuery
from spm.query.fake import FakeStorage
from spm.query.formats import remote_read
from spm.query.formats.remote_read import RemoteReadQuery, RemoteReadRequest
from spm.query.request.batches import Matcher, SeriesBatch
from spm.wire import STALE_BITS
from tests.support.people import Tenant

READ = "/prometheus/api/v1/read"
OPS = ("=", "!=", "=~", "!~")


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    raw = b""
    while number > 127:
        raw, number = raw + bytes([number & 127 | 128]), number >> 7
    return raw + bytes([number])


def text(field: int, raw: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(raw)) + raw


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def request_of(*queries: RemoteReadQuery, accept: bytes = b"") -> bytes:
    """Encode a request as Prometheus does, with hints that the server ignores."""
    raw = b""
    for each in queries:
        matchers = b"".join(
            text(3, number(1, OPS.index(m.op)) + text(2, m.name.encode()) + text(3, m.value.encode()))
            for m in each.matchers
        )
        hints = text(4, number(1, 60_000) + text(2, b"rate") + number(3, each.start_ms))
        raw += text(1, number(1, each.start_ms) + number(2, each.end_ms) + matchers + hints)
    return raw + accept


def fields(raw: bytes) -> list[tuple[int, Any]]:
    """Parse a message simply, to check the encoder."""
    at = 0
    pairs: list[tuple[int, Any]] = []

    def take() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte, at = raw[at], at + 1
            value, shift = value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value

    while at < len(raw):
        tag = take()
        size = {0: 0, 1: 8}.get(tag & 7)
        if size == 0:
            pairs.append((tag >> 3, take()))
            continue
        size = take() if size is None else size
        pairs.append((tag >> 3, raw[at : at + size]))
        at += size
    return pairs


def series_of(raw: bytes) -> list[list[tuple[dict[str, str], list[tuple[int, int]]]]]:
    """Return per query the labels, and (time, bits) of the samples."""
    results = []
    for _, result in fields(raw):
        series = []
        for _, each in fields(result):
            parts = fields(each)
            labels = [[each.decode() for _, each in fields(value)] for field, value in parts if field == 1]
            samples = [dict(fields(value)) for field, value in parts if field == 2]
            points = [(s[2] - (1 << 64) if s[2] >> 63 else s[2], struct.unpack("<Q", s[1])[0]) for s in samples]
            series.append((dict(labels), points))
        results.append(series)
    return results


MATCHERS = st.builds(Matcher, st.text(max_size=5), st.sampled_from(OPS), st.text(max_size=5))
QUERIES = st.builds(
    lambda more, start, end: RemoteReadQuery((Matcher("__name__", "=", "up"), *more), start, end),
    st.lists(MATCHERS, max_size=3).filter(lambda matchers: all("~" not in m.op for m in matchers)),
    st.integers(-(10**12), 10**13),
    st.integers(-(10**12), 10**13),
)


@given(st.lists(QUERIES, min_size=1, max_size=3))
def test_request_reads_as_it_was_written(queries: list[RemoteReadQuery]) -> None:
    assert remote_read.parse_request(request_of(*queries)) == RemoteReadRequest(tuple(queries), streamed=False)


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_damaged_request_is_refused_and_nothing_else(raw: bytes) -> None:
    with contextlib.suppress(BadQuery):
        remote_read.parse_request(raw)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(-(2**62), 2**62), st.integers(0, 2**64 - 1)), min_size=1, max_size=20))
def test_samples_are_written_with_their_times_and_all_bits(points: list[tuple[int, int]]) -> None:
    ts = np.array([at for at, _ in points], np.int64)
    bits = np.array([value for _, value in points], np.uint64)
    batch = SeriesBatch([{"__name__": "m", "a": "ä"}], np.array([0, len(ts)]), ts, bits.view(np.float64))
    assert series_of(remote_read.encode_response([batch])) == [[({"__name__": "m", "a": "ä"}, points)]]


@pytest.fixture
def storage(alpha: Tenant, monkeypatch: pytest.MonkeyPatch) -> FakeStorage:
    storage = FakeStorage()
    monkeypatch.setattr(query, "storage_for", lambda app: storage if app == alpha.app.pk else FakeStorage())
    return storage


def posted(client: Client, tenant: Tenant, body: bytes) -> Any:
    headers = {"Authorization": f"Bearer {tenant.token}", "Content-Encoding": "snappy"}
    return client.post(READ, body, content_type="application/x-protobuf", headers=headers)


def test_remote_read_gives_samples_of_both_ends_to_their_own_app(
    client: Client, alpha: Tenant, beta: Tenant, storage: FakeStorage
) -> None:
    storage.add("up", {"job": "b"}, [1_000, 2_000, 3_000], [1, 2, 3]).add("up", {"job": "a"}, [2_000], [np.nan])
    body = bytes(
        cramjam.snappy.compress_raw(request_of(RemoteReadQuery((Matcher("__name__", "=", "up"),), 1_000, 2_000)))
    )
    answer, foreign = posted(client, alpha, body), posted(client, beta, body)
    assert (answer["Content-Type"], answer["Content-Encoding"]) == ("application/x-protobuf", "snappy")
    [series] = series_of(bytes(cramjam.snappy.decompress_raw(answer.content)))
    assert [(labels["job"], [at for at, _ in points]) for labels, points in series] == [
        ("a", [2_000]),
        ("b", [1_000, 2_000]),
    ]
    assert series_of(bytes(cramjam.snappy.decompress_raw(foreign.content))) == [[]]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (request_of(RemoteReadQuery((Matcher("a", "=", "b"),), 1, 2), accept=number(2, 7)), "STREAMED_XOR_CHUNKS"),
        (request_of(RemoteReadQuery((), 1, 2)), "at least one matcher"),
        (b"", "1 to 100 queries"),
        (b"\xff" * 30, "damaged"),
    ],
)
def test_request_that_cannot_be_answered_is_a_400_with_its_reason(
    client: Client, alpha: Tenant, storage: FakeStorage, body: bytes, message: str
) -> None:
    answer = posted(client, alpha, bytes(cramjam.snappy.compress_raw(body)))
    assert answer.status_code == 400
    assert message in answer.json()["error"]


def test_a_decompression_bomb_is_refused_before_it_is_decompressed(
    client: Client, alpha: Tenant, storage: FakeStorage
) -> None:
    bombs = (
        bytes(cramjam.snappy.compress_raw(bytes(50_000_000))),
        b"\xff\xff\xff\xff\x0f" + b"x" * 9,
        b"not snappy at all",
    )
    assert [posted(client, alpha, bomb).status_code for bomb in bombs] == [400, 400, 400]


@pytest.mark.parametrize(
    ("accept", "streamed"),
    [
        (b"", False),
        (number(2, 0), False),
        (number(2, 1), True),
        (number(2, 1) + number(2, 0), True),
        (text(2, b"\x00\x01"), False),
        (number(2, 7) + number(2, 1), True),
    ],
)
def test_the_first_accepted_type_of_response_that_exists_is_sent(accept: bytes, *, streamed: bool) -> None:
    assert (
        remote_read.parse_request(request_of(RemoteReadQuery((Matcher("a", "=", "b"),), 1, 2), accept=accept)).streamed
        is streamed
    )


def test_federation_gives_the_newest_samples_of_series_that_have_not_ended(
    client: Client, alpha: Tenant, storage: FakeStorage
) -> None:
    now = SystemClock().now_ms() - 1_000
    stale = np.array([STALE_BITS], np.uint64).view(np.float64)[0]
    storage.add("up", {"job": "a"}, [now - 5, now], [1, 0.5]).add("up", {"job": "old"}, [now - 600_000], [1])
    storage.add("up", {"job": "gone"}, [now - 5, now], np.array([1, stale])).add("a.b", {"x": 'q"'}, [now], [np.inf])
    headers = {"Authorization": f"Bearer {alpha.token}", "Accept": "text/plain;version=1.0.0;escaping=allow-utf-8"}
    response = client.get("/prometheus/federate", {"match[]": ["up", '{__name__!=""}']}, headers=headers)
    assert response.content.decode().splitlines() == [
        '# TYPE "a.b" untyped',
        f'{{"a.b",instance="",x="q\\""}} +Inf {now}',
        "# TYPE up untyped",
        f'up{{instance="",job="a"}} 0.5 {now}',
    ]
    assert client.get("/prometheus/federate", headers=headers).status_code == 400


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("text/plain;version=0.0.4;q=1,*/*;q=0.1", "underscores"),
        ("", "underscores"),
        ("text/plain;version=1.0.0;escaping=underscores", "underscores"),
        ("application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;q=0.1", "allow-utf-8"),
    ],
)
def test_federation_writes_quoted_names_only_for_clients_that_accept_them(
    client: Client, alpha: Tenant, storage: FakeStorage, accept: str, expected: str
) -> None:
    now = SystemClock().now_ms() - 1_000
    storage.add("1a.b:é", {"x.y": "q", "c:d": "e"}, [now], [1])
    headers = {"Authorization": f"Bearer {alpha.token}", "Accept": accept}
    response = client.get("/prometheus/federate", {"match[]": '{__name__!=""}'}, headers=headers)
    assert f"escaping={expected}" in response["Content-Type"]
    plain, quoted = '_a_b:_{c_d="e",instance="",x_y="q"}', '{"1a.b:é","c:d"="e",instance="","x.y"="q"}'
    assert (plain if expected == "underscores" else quoted) in response.content.decode()


def test_federation_names_each_metric_once_with_all_its_series(
    client: Client, alpha: Tenant, storage: FakeStorage
) -> None:
    now = SystemClock().now_ms() - 1_000
    for name, labels in (("room", {}), ("room_a", {"x": "1"}), ("room", {"x": "1"}), ("room", {"instance": "own"})):
        storage.add(name, labels, [now], [1])
    selectors = {"match[]": ['{__name__=~"room.*"}', "room"]}
    response = client.get("/prometheus/federate", selectors, headers={"Authorization": f"Bearer {alpha.token}"})
    assert response.content.decode().splitlines() == [
        "# TYPE room untyped",
        f'room{{instance="",x="1"}} 1 {now}',
        f'room{{instance=""}} 1 {now}',
        f'room{{instance="own"}} 1 {now}',
        "# TYPE room_a untyped",
        f'room_a{{instance="",x="1"}} 1 {now}',
    ]
