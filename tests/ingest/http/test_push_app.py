"""Claims about ingest/http/push_app.py: it answers as the Django views do, and holds nothing of a push that is over."""

import asyncio
import gzip
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote_to_bytes

import cramjam
import pytest
import zstandard
from django.db import OperationalError
from django.test import Client

from ingest.accept.acceptor import Acceptor
from ingest.accept.rate_allowance import TooFast
from ingest.http import reception
from ingest.http.push_app import PushApplication
from ingest.http.urls import ENDPOINTS, endpoint_of
from spm import limits
from spm.accounts import tokens
from spm.accounts.models import App, Organisation
from spm.accounts.tokens import Principal
from spm.clock import FakeClock, SystemClock
from spm.errors import QueueUnavailable, StoreUnavailable
from spm.store.backends.memory import MemoryBackend
from spm.web.fair_pool import FairPool, PoolClosed, PoolFull, WaitedTooLong
from tests.ingest.http.pushing import HeldTransport, soon
from tests.ingest.protocols.remote_bodies import Series, request
from tests.support import process_state
from tests.support.acceptors import silent_announcer
from tests.support.event_loop import on_loop

NOW_MS = 1_700_000_000_000
SECRETS = {"one": Principal(1, 1, 1, frozenset({"ingest"})), "two": Principal(2, 2, 2, frozenset({"ingest"}))}
LINE = b"m,host=a v=1 1700000000000000000"
Pieces = list[bytes | None]  # of a body as it comes; ``None``: the client leaves


@dataclass
class Said:
    """An answer as it was sent."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class Site:
    """A push application on the running loop, over a transport that the test holds."""

    def __init__(self, transport: HeldTransport | None = None) -> None:
        self.transport = transport or HeldTransport()
        clock = FakeClock(NOW_MS)
        self.acceptor = Acceptor(silent_announcer(clock, MemoryBackend()), self.transport, clock)
        self.pool = FairPool("names", threads=4, threads_max=4, per_key_max=4, waiting_max=9, per_key_waiting_max=9)
        self.app = PushApplication(lambda: self.acceptor, self.pool, SystemClock())
        self.pieces_read = 0  # of all bodies

    async def ask(
        self,
        path: str,
        body: bytes | Pieces = b"",
        method: str = "POST",
        *lines: tuple[str, str],
        chunked: bool = False,
        scheme: str = "http",
        **headers: Any,
    ) -> Said:
        """Send a request; names of headers have underscores, ``lines`` are more headers."""
        pieces: Pieces = [body] if isinstance(body, bytes) else list(body)
        pairs = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
        pairs += [(name.encode(), value.encode("latin-1")) for name, value in lines]
        if isinstance(body, bytes) and not chunked and method != "GET":
            pairs.append((b"content-length", str(len(body)).encode()))
        raw, _, query = path.partition("?")
        scope = {
            "method": method,
            "path": unquote_to_bytes(raw).decode("utf-8", "replace"),
            "raw_path": raw.encode(),
            "query_string": query.encode(),
            "headers": pairs,
            "client": ("127.0.0.1", 5),
            "scheme": scheme,
        }

        async def receive() -> dict[str, Any]:
            await asyncio.sleep(0)
            self.pieces_read += 1
            piece = pieces.pop(0) if pieces else None
            if piece is None:
                return {"type": "http.disconnect"}
            return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

        said = Said()

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                said.status = message["status"]
                said.headers = {name.decode(): value.decode("latin-1") for name, value in message["headers"]}
                assert len(said.headers) == len(message["headers"]), "a header twice"
            else:
                said.body += message["body"]

        endpoint = endpoint_of(scope["path"])  # type: ignore[arg-type]
        assert endpoint is not None, path
        await self.app(endpoint, scope, receive, send)
        return said

    async def nothing_left(self) -> bool:
        """Whether nothing of any push is held."""
        own = self.app._batcher
        return await soon(
            lambda: not any((own._in_flight, own._batches, own._waiting, own._backlog, self.app._bytes.total)), 5
        )


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tokens of ``SECRETS`` are known; others are not."""
    monkeypatch.setattr(tokens, "authenticate_from_cache", lambda secret, scope: SECRETS.get(secret))
    monkeypatch.setattr(tokens, "from_header", lambda header: header.removeprefix("Bearer "))


@pytest.mark.usefixtures("known")
class TestBytes:
    """Bytes of bodies are bounded, and given back whatever becomes of a push."""

    @pytest.mark.parametrize(
        ("body", "headers", "status"),
        [
            pytest.param(LINE, {}, 204, id="accepted"),
            pytest.param([LINE[:9], LINE[9:]], {}, 204, id="accepted, in chunks"),
            pytest.param(b"m v=x", {}, 400, id="rejected"),
            pytest.param(b"plain", {"content_encoding": "gzip"}, 400, id="damaged"),
            pytest.param(b"plain", {"content_encoding": "br"}, 415, id="of an unknown encoding"),
            pytest.param([b"x" * 6_000_000] * 2, {}, 413, id="too large, in chunks"),
            pytest.param([b"x" * 9_000_000, None], {}, 0, id="its client left"),
            pytest.param([None], {}, 0, id="its client left before"),
        ],
    )
    def test_a_push_that_is_over_holds_no_bytes(self, body: bytes | Pieces, headers: Any, status: int) -> None:
        async def act() -> None:
            site = Site()
            said = await site.ask("/write", body, authorization="Bearer one", **headers)
            assert said.status == status
            assert await site.nothing_left()
            assert (await site.ask("/write", LINE, authorization="Bearer one")).status == 204

        on_loop(act())

    @pytest.mark.parametrize("path", ["/write", "/v1/metrics", "/api/v1/write", "/api/v1/import/prometheus"])
    @pytest.mark.parametrize(
        ("status", "token", "length", "is_too_fast"),
        [
            pytest.param(401, "none", 9, False, id="no token of ours"),
            pytest.param(429, "one", 9, True, id="over the rate"),
            pytest.param(413, "one", limits.BODY_BYTES_MAX + 1, False, id="too large"),
        ],
    )
    def test_a_push_that_is_refused_by_its_head_is_answered_before_a_byte_is_read(
        self, path: str, status: int, token: str, length: int, is_too_fast: bool
    ) -> None:
        async def act() -> None:
            site = Site()
            if is_too_fast:
                _too_fast(site)
            sent: dict[str, Any] = {"authorization": f"Bearer {token}", "content_type": "application/x-protobuf"}
            said = await site.ask(path, [b"never read"], content_length=str(length), **sent)
            wants_503 = is_too_fast and path == "/api/v1/write"  # Prometheus drops a body that is answered with 429
            assert said.status == (503 if wants_503 else status)
            assert site.pieces_read == 0

        on_loop(act())

    @pytest.mark.parametrize("whose", ["one organisation's", "all"])
    def test_bodies_beyond_the_room_are_answered_503_and_those_before_them_are_not_touched(
        self, whose: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(limits, "BODIES_IN_FLIGHT_ORGANISATION_BYTES_MAX", 100 if whose != "all" else 400)
        monkeypatch.setattr(limits, "BODIES_IN_FLIGHT_BYTES_MAX", 400 if whose != "all" else 200)

        async def act() -> None:
            site = Site(HeldTransport(confirms=False))
            body = LINE.ljust(90)
            first = asyncio.create_task(site.ask("/write", body, authorization="Bearer one"))
            assert await soon(lambda: bool(site.transport.unconfirmed))
            second = await site.ask("/write", body, authorization="Bearer one")
            assert (second.status, second.headers["retry-after"]) == (503, str(limits.RETRY_AFTER_S))
            assert b"fill their room" in second.body
            other = asyncio.create_task(site.ask("/write", LINE, authorization="Bearer two"))
            assert await soon(lambda: site.app._bytes.total > 90)
            site.transport.confirms = True
            site.transport.settle()
            assert ((await first).status, (await other).status) == (204, 204)
            assert await site.nothing_left()

        on_loop(act())

    def test_a_push_whose_task_is_cancelled_holds_no_bytes(self) -> None:
        async def act() -> None:
            site = Site(HeldTransport(confirms=False))
            push = asyncio.create_task(site.ask("/write", LINE, authorization="Bearer one"))
            assert await soon(lambda: bool(site.transport.unconfirmed))
            push.cancel()
            await asyncio.wait([push])
            assert site.app._bytes.total == 0
            site.transport.settle()
            assert await site.nothing_left()

        on_loop(act())


@pytest.mark.usefixtures("known")
class TestFaults:
    """A fault of ours is a 500 for one sender; what is only busy is a 503."""

    @pytest.mark.parametrize("where", ["plan", "parse", "respond", "rate", "transport"])
    def test_a_fault_of_ours_is_a_500_without_its_text_and_leaves_nothing(
        self, where: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def breaks(*_: object) -> Any:
            raise ZeroDivisionError("a secret")

        async def act() -> None:
            site = Site()
            endpoint: Any = ENDPOINTS["api/v1/metrics"]
            if where == "parse":
                plan = replace(endpoint.plan(None), parse=breaks)
                monkeypatch.setitem(ENDPOINTS, "api/v1/metrics", replace(endpoint, plan=lambda _: plan))
            elif where == "rate":
                monkeypatch.setattr(site.acceptor, "check_rate", breaks)
            elif where == "transport":
                site.transport.fault = ZeroDivisionError("a secret")
            else:
                monkeypatch.setitem(ENDPOINTS, "api/v1/metrics", replace(endpoint, **{where: breaks}))
            body = b'{"samples": [{"metric": "m", "value": 1, "time": 1}]}'
            said = await site.ask("/api/v1/metrics", body, authorization="Bearer one")
            assert said.status == (503 if where == "transport" else 500)
            assert said.headers["x-content-type-options"] == "nosniff"
            assert b"secret" not in said.body
            assert json.loads(said.body)["error"]
            assert await site.nothing_left()

        on_loop(act())
        assert "ZeroDivisionError" in caplog.text

    @pytest.mark.parametrize("error", [PoolFull("so many wait"), WaitedTooLong("too long"), PoolClosed()], ids=str)
    @pytest.mark.parametrize("path", ["/write", "/v1/metrics", "/api/v1/write"])
    def test_a_push_that_finds_no_thread_is_asked_to_come_again(
        self, error: Exception, path: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def busy(*_: object, **__: object) -> None:
            raise error

        async def act() -> None:
            site = Site()
            monkeypatch.setattr(site.pool, "run", busy)
            kind = "application/x-protobuf"
            said = await site.ask(path, LINE, authorization="Bearer one", content_type=kind)
            assert (said.status, said.headers["retry-after"]) == (503, str(limits.RETRY_AFTER_S))
            assert str(error).encode() in said.body

        on_loop(act())

    def test_a_database_that_fails_is_a_503(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def unknown(secret: str, scope: str) -> Principal:
            raise KeyError

        def fails(secret: str, scope: str) -> Principal:
            raise OperationalError("locked")

        monkeypatch.setattr(tokens, "authenticate_from_cache", unknown)
        monkeypatch.setattr(tokens, "authenticate", fails)

        async def act() -> None:
            said = await Site().ask("/write", LINE, authorization="Bearer one")
            assert (said.status, json.loads(said.body)["got"][:28]) == (503, "the database does not answer")

        on_loop(act())


Ask = tuple[str, bytes, str, dict[str, str]]
JSON = b'{"samples": [{"metric": "m", "value": 1, "time": 1700000000000}]}'
WRITE = bytes(cramjam.snappy.compress_raw(request([Series([("__name__", "m"), ("a", "b")], [(NOW_MS, 1.0)])])))
REMOTE = {"content_type": "application/x-protobuf", "content_encoding": "snappy"}
COLLECTD = json.dumps(
    [
        {
            "values": [1],
            "dstypes": ["gauge"],
            "dsnames": ["value"],
            "time": 1_700_000_000,
            "interval": 10,
            "host": "h",
            "plugin": "cpu",
            "plugin_instance": "0",
            "type": "cpu",
            "type_instance": "idle",
        }
    ]
).encode()
TABLE: dict[str, Ask] = {
    "JSON": ("/api/v1/metrics", JSON, "POST", {}),
    "JSON, partly wrong": ("/api/v1/metrics", JSON[:-2] + b', {"metric": ""}]}', "POST", {}),
    "JSON, all wrong": ("/api/v1/metrics", b'{"samples": [{"metric": ""}]}', "POST", {}),
    "no JSON": ("/api/v1/metrics", b"{", "POST", {}),
    "lines": ("/write", LINE, "POST", {}),
    "lines of another client": ("/api/v2/write?bucket=b&precision=s", b"m v=1 1700000000", "POST", {}),
    "lines, partly wrong": ("/write", LINE + b"\nm v=x", "POST", {}),
    "lines of nothing": ("/write", b"", "POST", {}),
    "an unknown precision": ("/write?precision=years", LINE, "POST", {}),
    "gzip": ("/write", gzip.compress(LINE), "POST", {"content_encoding": "gzip"}),
    "zstd": ("/write", zstandard.compress(LINE), "POST", {"content_encoding": " ZSTD "}),
    "damaged gzip": ("/write", gzip.compress(LINE)[:-9], "POST", {"content_encoding": "gzip"}),
    "an unknown encoding": ("/write", LINE, "POST", {"content_encoding": "br"}),
    "two encodings": ("/write", LINE, "POST", {"content_encoding": "gzip, gzip"}),
    "too large when it is unpacked": ("/write", gzip.compress(bytes(20_000_001)), "POST", {"content_encoding": "gzip"}),
    "remote write": ("/api/v1/write", WRITE, "POST", REMOTE),
    "remote write of another type": ("/api/v1/write", WRITE, "POST", {"content_type": "text/plain"}),
    "damaged remote write": ("/api/v1/write", WRITE[:-3], "POST", REMOTE),
    "text": ("/api/v1/import/prometheus?extra_label=a=b", b"m 1 1700000000000\n", "POST", {}),
    "wrong text": ("/api/v1/import/prometheus", b"m{ 1\n", "PUT", {}),
    "a pushgateway": ("/metrics/job/a/host/b%20c", b"m 1 1700000000000\n", "PUT", {}),
    "a pushgateway without UTF-8": ("/metrics/job/a/host/%FF%2f%e4", b"m 1 1700000000000\n", "PUT", {}),
    "a pushgateway, deleted": ("/metrics/job/a", b"", "DELETE", {}),
    "a pushgateway without a value": ("/metrics/job/a/host", b"m 1\n", "POST", {}),
    "OTLP of nothing": ("/v1/metrics", b"\n\0", "POST", {"content_type": "application/x-protobuf"}),
    "OTLP as JSON": ("/v1/metrics", b'{"resourceMetrics": []}', "POST", {"content_type": "application/json"}),
    "damaged OTLP": ("/v1/metrics", b"\xff\xff", "POST", {"content_type": "application/x-protobuf"}),
    "OTLP of another type": ("/v1/metrics", b"x", "POST", {"content_type": "text/plain"}),
    "OTLP by GET": ("/v1/metrics", b"", "GET", {}),
    "collectd": ("/api/v1/collectd", COLLECTD, "POST", {}),
    "an own id": ("/write", b"m v=1", "POST", {"x_message_id": "0123456789abcdef0123456789ABCDEF"}),
    "too long an id": ("/write", LINE, "POST", {"x_message_id": "x" * 500}),
    "an own source": ("/write", LINE, "POST", {"x_spm_source": "host-7", "x_spm_period": "10"}),
    "too long a source": ("/write?source=" + "x" * 999, LINE, "POST", {}),
    "too many parameters": ("/write?" + "a=1&" * 1_001, LINE, "POST", {}),
    "no token": ("/write", LINE, "POST", {"authorization": ""}),
    "no token of ours": ("/write", LINE, "POST", {"authorization": "Bearer spm_x"}),
    "no token, OTLP": ("/v1/metrics", b"", "POST", {"authorization": "", "content_type": "application/json"}),
    "a token in the address": ("/write?token={secret}", LINE, "POST", {"authorization": ""}),
    "ping": ("/ping", b"", "GET", {}),
    "a ping that wants more": ("/ping?verbose=true", b"", "GET", {}),
    "a ping without a body": ("/ping", b"", "HEAD", {}),
    "health": ("/health", b"", "GET", {"authorization": ""}),
    "health without a body": ("/health", b"", "HEAD", {}),
    "a wrong method": ("/ping", b"", "POST", {}),
    "a query": ("/query?q=SHOW DATABASES".replace(" ", "%20"), b"", "GET", {}),
    "a query as a form": (
        "/query",
        b"q=create+database+x",
        "POST",
        {"content_type": "application/x-www-form-urlencoded"},
    ),
    "another query": ("/query?q=SELECT%201", b"", "GET", {}),
    "too long a form": ("/query", b"q=" + b"x" * 70_000, "POST", {}),
    "an encoded form": ("/query", gzip.compress(b"q=SHOW DATABASES"), "POST", {"content_encoding": "gzip"}),
    "a query without a token": ("/query?q=x", b"", "GET", {"authorization": ""}),
}


@pytest.fixture
def secret(db: None) -> Iterator[str]:
    organisation = Organisation.objects.create(name="Example")
    app = App.objects.create(organisation=organisation, name="Shop")
    secret = tokens.issue(app, name="agent", scopes=["ingest"])[1]
    assert tokens.authenticate(secret, "ingest") is not None  # the loop finds it in the cache
    yield secret
    process_state.forget_tokens()


Both = Callable[..., tuple[Said, Said]]


@pytest.fixture
def both(secret: str, monkeypatch: pytest.MonkeyPatch) -> Both:
    """Ask the loop and Django the same; return both answers."""

    def ask(
        path: str,
        body: bytes,
        method: str,
        headers: dict[str, str],
        change: Callable[[Site], None] = lambda site: None,
        scheme: str = "http",
    ) -> tuple[Said, Said]:
        path = path.replace("{secret}", secret)
        sent: dict[str, Any] = {"authorization": f"Bearer {secret}", **headers}
        sent = {name: value for name, value in sent.items() if value}

        async def of_loop() -> Said:
            site = Site()
            change(site)
            said = await site.ask(path, body, method, scheme=scheme, **sent)
            assert await site.nothing_left()
            return said

        async def of_django() -> Site:
            site = Site()
            change(site)
            return site

        first = on_loop(of_loop())
        site = on_loop(of_django())
        monkeypatch.setattr(reception, "process_acceptor", lambda: site.acceptor)
        kind = sent.pop("content_type", "")
        answer = Client().generic(
            method,
            path,
            body,
            kind,
            secure=scheme == "https",
            headers={name.replace("_", "-"): value for name, value in sent.items()},
        )
        lines = {name.lower(): value for name, value in answer.headers.items()}
        if answer.status_code == 204:
            lines.pop("content-length", None)  # of a middleware; an answer without a body must have none
        return first, Said(answer.status_code, lines, answer.content)

    return ask


@pytest.mark.urls("ingest.http.urls")
@pytest.mark.django_db
@pytest.mark.parametrize("ask", TABLE.values(), ids=list(TABLE))
def test_the_loop_and_django_answer_alike_in_every_byte(ask: Ask, both: Both) -> None:
    of_loop, of_django = both(*ask)
    assert of_loop == of_django
    assert of_loop.status not in (0, 500)


def _full(site: Site) -> None:
    site.transport.full = QueueUnavailable("no room")


def _away(site: Site) -> None:
    site.transport.full = StoreUnavailable("the store is away")


def _too_fast(site: Site) -> None:
    def check_rate(app: int) -> None:
        raise TooFast(7, 12.3)

    site.acceptor.check_rate = check_rate  # type: ignore[method-assign, assignment]


@pytest.mark.urls("ingest.http.urls")
@pytest.mark.django_db
@pytest.mark.parametrize("change", [_full, _away, _too_fast], ids=["no room", "no store", "too fast"])
@pytest.mark.parametrize("name", ["JSON", "lines", "remote write", "text", "a pushgateway", "OTLP as JSON", "collectd"])
def test_the_loop_and_django_say_alike_that_they_take_nothing_now(
    name: str, change: Callable[[Site], None], both: Both
) -> None:
    of_loop, of_django = both(*TABLE[name], change)
    assert of_loop == of_django
    assert of_loop.status in (429, 503) or name == "OTLP as JSON"


@pytest.mark.urls("ingest.http.urls")
@pytest.mark.django_db
@pytest.mark.parametrize("name", ["lines", "no token", "ping"])
def test_the_loop_and_django_make_browsers_remember_https_alike(name: str, both: Both, settings: Any) -> None:
    settings.SECURE_HSTS_SECONDS = 60
    of_loop, of_django = both(*TABLE[name], scheme="https")
    assert of_loop == of_django
    assert of_loop.headers["strict-transport-security"] == "max-age=60"


@pytest.mark.usefixtures("known")
def test_the_values_of_a_header_that_comes_twice_are_one() -> None:
    async def act() -> None:
        packed = gzip.compress(LINE)
        lines = (("content-encoding", "gzip"), ("content-encoding", "gzip"))
        said = await Site().ask("/write", packed, "POST", *lines, authorization="Bearer one")
        assert (said.status, json.loads(said.body)["got"]) == (415, "gzip,gzip")

    on_loop(act())


def test_a_token_that_is_not_cached_is_looked_up_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(secret: str, scope: str) -> Principal:
        raise KeyError

    monkeypatch.setattr(tokens, "authenticate_from_cache", unknown)
    monkeypatch.setattr(tokens, "from_header", lambda header: header.removeprefix("Bearer "))
    monkeypatch.setattr(tokens, "authenticate", lambda secret, scope: SECRETS.get(secret))

    async def act() -> None:
        site = Site()
        assert (await site.ask("/write", LINE, authorization="Bearer one")).status == 204
        assert (await site.ask("/write", LINE, authorization="Bearer none")).status == 401

    on_loop(act())
