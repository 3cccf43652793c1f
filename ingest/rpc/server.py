"""The server of OTLP over gRPC: what OpenTelemetry's exporters call by default, on the event loop of a web process.

A call becomes a push of the endpoint of OTLP over HTTP, so that tokens, rates, quotas, batches and answers are one. The
token is the metadata ``authorization``. gRPC hands a message over as it was sent: its compression is undone by the
readers of bodies, under their bounds. A call is authenticated before its message is read, and few messages are read at
once, so that those that arrive slowly occupy little memory. Enter by ``OtlpServer``.
"""

import asyncio
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import unquote
from weakref import WeakValueDictionary

import grpc
from grpc import aio

from ingest.http.endpoints.otlp import otlp_endpoint
from ingest.http.exchange import PushAnswer, PushRequest
from ingest.http.push_app import PushApplication
from ingest.http.reception import secret_of
from ingest.rpc import limits as own_limits
from ingest.rpc.status import status_of
from spm import limits
from spm.accounts import tokens
from spm.errors import BadMessage, Explained, QueueUnavailable

METHOD = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
_GZIP = b"\x1f\x8b"  # no message of protobuf begins so: its field 3 would have the wire type 7
_OPTIONS = (
    ("grpc.per_message_decompression", 0),  # it knows no bound
    ("grpc.compression_enabled_algorithms_bitset", 0b101),  # none and gzip
    ("grpc.max_receive_message_length", own_limits.MESSAGE_BYTES_MAX),
    ("grpc.max_metadata_size", own_limits.METADATA_BYTES_MAX),
    ("grpc.max_concurrent_streams", own_limits.CONNECTION_CALLS_MAX),
    ("grpc.max_allowed_incoming_connections", own_limits.CONNECTIONS_MAX),
    ("grpc.http2.bdp_probe", 0),  # it lets calls send more before anybody reads them
    ("grpc.server_handshake_timeout_ms", limits.WEB_SILENT_S * 1_000),
    ("grpc.keepalive_time_ms", limits.WEB_IDLE_S * 1_000),  # finds clients that have gone
    ("grpc.http2.min_ping_interval_without_data_ms", own_limits.CLIENT_PING_S * 1_000),
    ("grpc.so_reuseport", 1),  # the web processes of a site share the port, also while they are replaced
)


class OtlpServer:
    """Listens at one address; all its pushes go to ``push``. Made, started and stopped on the running loop."""

    def __init__(self, push: PushApplication, address: str) -> None:
        self._address = address
        self._server = aio.server(options=_OPTIONS, maximum_concurrent_rpcs=own_limits.CALLS_MAX)
        self._server.add_generic_rpc_handlers((_Handlers(push),))
        self.port = 0

    async def start(self) -> None:
        """Listen."""
        self.port = self._server.add_insecure_port(self._address)
        await self._server.start()

    async def stop(self) -> None:
        """Take no more calls; those at work get their answers."""
        await self._server.stop(limits.WEB_GRACE_S - limits.WEB_LAST_REQUEST_S)


class _Handlers(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc has no types
    def __init__(self, push: PushApplication) -> None:
        self._endpoint = replace(otlp_endpoint("otlp-grpc"), error_format=_as_text)
        self._push, self._turns = push, _Turns()
        self._handler = grpc.stream_unary_rpc_method_handler(self._export)  # which reads when it says so

    def service(self, call: Any) -> Any:
        return self._handler if call.method == METHOD else None

    async def _export(self, _messages: object, context: Any) -> bytes:
        headers = {name: value for name, value in context.invocation_metadata() if isinstance(value, str)}
        headers["content-type"] = "application/x-protobuf"
        request = PushRequest("POST", METHOD, "", headers, _address_of(context.peer()))

        async def receive() -> dict[str, Any]:
            message = await self._read(context, request)
            if message.startswith(_GZIP):
                headers["content-encoding"] = "gzip"
            return {"type": "http.request", "body": message}

        answer = await self._push.answer(self._endpoint, request, receive)
        if answer.status == 200:
            return answer.body
        status = status_of(answer)
        await context.abort(_STATUSES[status.code], status.text, status.metadata)
        raise AssertionError("BUG: an aborted call goes on")

    async def _read(self, context: Any, request: PushRequest) -> bytes:
        try:
            async with asyncio.timeout(own_limits.READ_S), self._turns.take(_key_of(request)):
                message = await context.read()
        except TimeoutError as error:
            raise QueueUnavailable(f"the message did not arrive within {own_limits.READ_S} s") from error
        if message is aio.EOF:
            raise BadMessage("the call has no message", wanted="one ExportMetricsServiceRequest")
        return bytes(message)


_STATUSES = {code.value[0]: code for code in grpc.StatusCode}


class _Turns:
    """Lets few messages arrive at once, a quarter of them of one key at most."""

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(own_limits.READS_MAX)
        self._by_key: WeakValueDictionary[Hashable, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def take(self, key: Hashable) -> AsyncIterator[None]:
        own = self._by_key.get(key)
        if own is None:
            own = self._by_key[key] = asyncio.Semaphore(max(1, own_limits.READS_MAX // 4))
        async with own, self._all:
            yield


def _key_of(request: PushRequest) -> Hashable:
    """Return the organisation of a request, whose token was valid a moment ago."""
    principal = tokens.last_principal(secret_of(request))
    return principal.organisation_id if principal is not None else ""


def _address_of(peer: str) -> str:
    """Return the client's address of ``ipv4:127.0.0.1:5`` or ``ipv6:%5B::1%5D:5``."""
    return unquote(peer).partition(":")[2].rpartition(":")[0].strip("[]")


def _as_text(_request: PushRequest, status: int, error: Explained) -> PushAnswer:
    return PushAnswer(status, str(error).encode(), "text/plain")
