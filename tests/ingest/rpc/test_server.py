"""Claims about ingest/rpc: OTLP over gRPC has the tokens, limits and answers of OTLP over HTTP."""

import asyncio
import gzip
import resource
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from grpc import aio
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

from ingest.accept.rate_allowance import TooFast
from ingest.rpc import limits as own_limits
from ingest.rpc.server import METHOD, OtlpServer
from spm import limits
from spm.accounts import tokens
from spm.errors import QueueUnavailable
from tests.ingest.http.pushing import HeldTransport, soon
from tests.ingest.http.test_push_app import NOW_MS, SECRETS, Site
from tests.ingest.protocols.otlp_bodies import Metric, Point
from tests.ingest.protocols.otlp_bodies import request as otlp_body
from tests.support.event_loop import on_loop

BODY = otlp_body(Metric("m", "gauge", [Point(1.5, at_ms=NOW_MS, labels={"a": "b"})]))
ONE = (("authorization", "Bearer one"),)
CODE = grpc.StatusCode


@dataclass
class Ended:
    """How a call ended."""

    code: Any = CODE.OK
    text: str = ""
    answer: ExportMetricsServiceResponse = field(default_factory=ExportMetricsServiceResponse)
    details: Status = field(default_factory=Status)

    @property
    def wait_s(self) -> int | None:
        """After how many seconds the exporter is to send again."""
        retry = RetryInfo()
        return retry.retry_delay.seconds if self.details.details and self.details.details[0].Unpack(retry) else None


class Served(Site):
    """A push application with a gRPC server."""

    def __init__(self, transport: HeldTransport | None = None) -> None:
        super().__init__(transport)
        self.server = OtlpServer(self.app, "127.0.0.1:0")

    async def call(self, body: bytes = BODY, metadata: Any = ONE, **options: Any) -> Ended:
        """Call as an exporter does."""
        async with aio.insecure_channel(f"127.0.0.1:{self.server.port}", **options) as channel:
            try:
                raw = await channel.unary_unary(METHOD)(body, metadata=metadata, timeout=20)
            except aio.AioRpcError as error:
                details = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin", b"")
                return Ended(error.code(), error.details() or "", details=Status.FromString(details))
            return Ended(answer=ExportMetricsServiceResponse.FromString(raw))


@asynccontextmanager
async def serving(transport: HeldTransport | None = None) -> AsyncIterator[Served]:
    """A server that is stopped at the end."""
    site = Served(transport)
    await site.server.start()
    try:
        yield site
        assert await site.nothing_left()
    finally:
        await site.server.stop()


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tokens of ``SECRETS`` are known; others are not."""
    monkeypatch.setattr(tokens, "authenticate_from_cache", lambda secret, scope: SECRETS.get(secret))
    monkeypatch.setattr(tokens, "last_principal", SECRETS.get)
    monkeypatch.setattr(tokens, "from_header", lambda header: header.removeprefix("Bearer "))


def run(act: Callable[[Served], Awaitable[None]], transport: HeldTransport | None = None) -> None:
    """Let ``act`` call a server."""

    async def all_of_it() -> None:
        async with serving(transport) as site:
            await act(site)

    on_loop(all_of_it())


@pytest.mark.parametrize("packing", [grpc.Compression.NoCompression, grpc.Compression.Gzip], ids=["plain", "gzip"])
def test_a_message_is_accepted_once_it_is_durable(packing: Any) -> None:
    async def act(site: Served) -> None:
        call = asyncio.create_task(site.call(compression=packing))
        assert await soon(lambda: bool(site.transport.unconfirmed))
        await asyncio.sleep(0.05)
        assert not call.done()
        site.transport.settle()
        assert await call == Ended()
        [envelope] = site.transport.published
        assert (envelope.ts.tolist(), envelope.values.tolist()) == ([NOW_MS], [1.5])

    run(act, HeldTransport(confirms=False))


def test_rejected_points_are_a_partial_success() -> None:
    async def act(site: Served) -> None:
        ahead = Point(2.0, at_ms=NOW_MS + 48 * 3_600_000)
        ended = await site.call(otlp_body(Metric("m", "gauge", [Point(1.0, at_ms=NOW_MS), ahead])))
        assert (ended.code, ended.answer.partial_success.rejected_data_points) == (CODE.OK, 1)
        assert "24 h" in ended.answer.partial_success.error_message

    run(act)


@pytest.mark.parametrize(
    ("body", "metadata", "code", "text"),
    [
        pytest.param(BODY, (), CODE.UNAUTHENTICATED, "no valid token", id="no token"),
        pytest.param(BODY, (("authorization", "Bearer no"),), CODE.UNAUTHENTICATED, "no valid token", id="a wrong one"),
        pytest.param(b"\xff" * 9, ONE, CODE.INVALID_ARGUMENT, "protobuf", id="no message of OTLP"),
        pytest.param(b"\x1f\x8b no gzip", ONE, CODE.INVALID_ARGUMENT, "cannot be decompressed", id="damaged gzip"),
        pytest.param(gzip.compress(bytes(900_000_000), 1), ONE, CODE.INVALID_ARGUMENT, "too large", id="a bomb"),
        pytest.param(b"\n" * 5_000_000, ONE, CODE.RESOURCE_EXHAUSTED, "larger than max", id="too large as sent"),
    ],
)
def test_what_stays_wrong_is_refused_for_good(body: bytes, metadata: Any, code: Any, text: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    async def act(site: Served) -> None:
        ended = await site.call(body, metadata)
        assert (ended.code, ended.wait_s) == (code, None)
        assert text in ended.text
        assert (await site.call()).code == CODE.OK

    run(act)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 150_000  # kB


def test_a_call_without_a_token_is_answered_before_its_message_is_read() -> None:
    async def act(site: Served) -> None:
        async with aio.insecure_channel(f"127.0.0.1:{site.server.port}") as channel:
            call = channel.stream_unary(METHOD)(metadata=(), timeout=20)
            assert await call.code() == CODE.UNAUTHENTICATED

    run(act)


def test_a_call_that_ends_without_a_message_is_refused() -> None:
    async def act(site: Served) -> None:
        async with aio.insecure_channel(f"127.0.0.1:{site.server.port}") as channel:
            call = channel.stream_unary(METHOD)(metadata=ONE, timeout=20)
            await call.done_writing()
            assert (await call.code(), "no message" in await call.details()) == (CODE.INVALID_ARGUMENT, True)

    run(act)


def _too_fast(site: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(app: int) -> None:
        raise TooFast(7, 7.2)

    monkeypatch.setattr(site.acceptor, "has_allowance", lambda app: False)
    monkeypatch.setattr(site.acceptor, "check_rate", refuse)


def _full(site: Served, _monkeypatch: pytest.MonkeyPatch) -> None:
    site.transport.full = QueueUnavailable("no room")


@pytest.mark.parametrize(
    ("change", "code", "wait_s"),
    [
        pytest.param(_too_fast, CODE.RESOURCE_EXHAUSTED, 8, id="over the rate"),
        pytest.param(_full, CODE.UNAVAILABLE, limits.RETRY_AFTER_S, id="no room"),
    ],
)
def test_what_passes_is_refused_with_the_time_to_send_again(
    change: Callable[[Served, pytest.MonkeyPatch], None], code: Any, wait_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(site: Served) -> None:
        change(site, monkeypatch)
        ended = await site.call()
        assert (ended.code, ended.wait_s) == (code, wait_s)
        assert ended.details.message == ended.text

    run(act)


def test_messages_that_do_not_arrive_keep_no_others_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_limits, "READS_MAX", 4)
    monkeypatch.setattr(own_limits, "READ_S", 0.5)

    async def act(site: Served) -> None:
        async with aio.insecure_channel(f"127.0.0.1:{site.server.port}") as channel:
            calls = [channel.stream_unary(METHOD)(metadata=ONE, timeout=20) for _ in range(6)]
            await asyncio.sleep(0.2)
            assert (await site.call(metadata=(("authorization", "Bearer two"),))).code == CODE.OK
            assert {await call.code() for call in calls} == {CODE.UNAVAILABLE}
            assert (await site.call()).code == CODE.OK

    run(act)


def test_calls_at_work_are_answered_when_the_server_stops_and_no_more_are_taken() -> None:
    async def act(site: Served) -> None:
        call = asyncio.create_task(site.call())
        assert await soon(lambda: bool(site.transport.unconfirmed))
        stop = asyncio.create_task(site.server.stop())
        await asyncio.sleep(0.2)
        assert (await site.call()).code == CODE.UNAVAILABLE
        site.transport.settle()
        await stop
        assert (await call).code == CODE.OK

    run(act, HeldTransport(confirms=False))


def test_another_method_is_unknown() -> None:
    async def act(site: Served) -> None:
        async with aio.insecure_channel(f"127.0.0.1:{site.server.port}") as channel:
            with pytest.raises(aio.AioRpcError) as caught:
                await channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")(b"")
        assert caught.value.code() == CODE.UNIMPLEMENTED

    run(act)
