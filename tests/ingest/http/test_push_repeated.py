"""Claims about pushes under a head that their connection has sent before: they are answered as all others are."""

import asyncio
import gzip
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ingest.http.push_app import PushApplication
from spm import limits
from spm.accounts import tokens
from spm.clock import SystemClock
from spm.web.http_protocol import AnswerAtOnce, WholeAnswer
from tests.ingest.http.test_push_app import LINE, SECRETS, Said, Site
from tests.support.event_loop import on_loop


class Offers(PushApplication):
    """A push application whose connection takes its offers."""

    def __init__(self, site: Site) -> None:
        super().__init__(lambda: site.acceptor, site.pool, SystemClock())
        self.takes: list[Callable[[bytes, WholeAnswer], bool]] = []
        self.answers: list[AnswerAtOnce] = []

    async def __call__(self, endpoint: Any, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        extensions = {"spm.repeat": self.takes.append, "spm.at_once": self.answers.append}
        await super().__call__(endpoint, {**scope, "extensions": extensions}, receive, send)


def offering_site() -> tuple[Site, list[Callable[[bytes, WholeAnswer], bool]]]:
    """A site, and what it has offered so far."""
    site = Site()
    site.app = app = Offers(site)
    return site, app.takes


class Sink:
    """Takes the bytes of an answer, in place of a connection."""

    server_state = SimpleNamespace(default_headers=[])

    def __init__(self) -> None:
        self.said, self.done = b"", asyncio.Event()

    def write(self, data: bytes) -> None:
        """Take the whole answer."""
        self.said += data

    def on_response_complete(self) -> None:
        """Note its end."""
        self.done.set()


@pytest.fixture
def remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tokens of ``SECRETS`` are known, and in the cache."""
    monkeypatch.setattr(tokens, "authenticate_from_cache", lambda secret, scope: SECRETS.get(secret))
    monkeypatch.setattr(tokens, "from_header", lambda header: header.removeprefix("Bearer "))
    monkeypatch.setattr(tokens, "digest_of", str.encode)
    monkeypatch.setattr(tokens, "principal_from_cache", lambda digest, scope: SECRETS.get(digest.decode()))


@pytest.mark.usefixtures("remembered")
class TestRepeatedHeads:
    """A push under a head that its connection has sent before is taken without a coroutine."""

    @pytest.mark.parametrize("scheme", ["http", "https"])
    @pytest.mark.parametrize(
        ("body", "encoding"),
        [
            pytest.param(LINE, "", id="accepted"),
            pytest.param(b"", "", id="empty"),
            pytest.param(LINE + b"\nm v=x", "", id="accepted in part"),
            pytest.param(b"m v=x", "", id="rejected"),
            pytest.param(gzip.compress(LINE), "gzip", id="packed"),
            pytest.param(b"plain", "gzip", id="damaged"),
            pytest.param(gzip.compress((LINE + b"\n") * 20_000), "gzip", id="large when it is decompressed"),
            pytest.param(gzip.compress(bytes(limits.BODY_DECODED_BYTES_MAX + 1)), "gzip", id="too large then"),
        ],
    )
    def test_it_is_answered_as_the_one_before(self, body: bytes, encoding: str, scheme: str, settings: Any) -> None:
        settings.SECURE_HSTS_SECONDS = 60
        headers: Any = {"authorization": "Bearer one", **({"content_encoding": encoding} if encoding else {})}

        async def act() -> tuple[Said, bytes]:
            (site, takes), sink = offering_site(), Sink()
            first = gzip.compress(LINE) if encoding else LINE
            assert (await site.ask("/write", first, scheme=scheme, **headers)).status == 204
            said = await site.ask("/write", body, scheme=scheme, **headers)
            if takes[0](body, WholeAnswer(sink)):
                await asyncio.wait_for(sink.done.wait(), 30)
            assert await site.nothing_left()
            return said, sink.said

        said, whole = on_loop(act())
        if len(body) > limits.JOIN_PACKED_BYTES_MAX:
            assert whole == b""
            return
        head, _, answer = whole.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        assert (int(first.split()[1]), answer) == (said.status, said.body)
        assert sorted(lines) == sorted(f"{name}: {value}" for name, value in said.headers.items())

    @pytest.mark.parametrize("why", ["revoked", "too fast", "too large", "closed", "no room"])
    def test_it_is_not_taken_where_the_usual_way_says_more(self, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
        async def act() -> None:
            site, takes = offering_site()
            assert (await site.ask("/write", LINE, authorization="Bearer one")).status == 204
            body = LINE
            if why == "revoked":
                monkeypatch.setattr(tokens, "principal_from_cache", lambda digest, scope: None)
            elif why == "too fast":
                monkeypatch.setattr(site.acceptor, "has_allowance", lambda app: False)
            elif why == "too large":
                body = LINE.ljust(limits.JOIN_BODY_BYTES_MAX + 1)
            elif why == "closed":
                site.app.close()
            else:
                site.app._bytes.add(1, limits.BODIES_IN_FLIGHT_ORGANISATION_BYTES_MAX)
            before = site.app._bytes.total
            assert not takes[0](body, WholeAnswer(Sink()))
            assert site.app._bytes.total == before

        on_loop(act())

    def test_only_a_push_that_was_accepted_offers_to_take_more(self) -> None:
        async def act() -> None:
            site, takes = offering_site()
            await site.ask("/write", b"m v=x", authorization="Bearer one")
            await site.ask("/write", LINE, authorization="Bearer none")
            await site.ask("/ping", method="GET")
            assert not takes

        on_loop(act())


@pytest.mark.parametrize("path", ["/ping", "/ping?verbose=1", "/health"])
def test_a_ping_that_is_sent_again_is_answered_at_once_and_equally(path: str) -> None:
    async def act() -> tuple[Said, list[AnswerAtOnce]]:
        site, _ = offering_site()
        return await site.ask(path, method="GET"), site.app.answers  # type: ignore[attr-defined]

    said, answers = on_loop(act())
    reply = answers[0](path.encode(), b"")
    assert reply is not None
    assert (reply[0], reply[2]) == (said.status, said.body)
    lines = reply[1].decode("latin-1").split("\r\n")
    assert sorted(lines) == sorted([*(f"{name}: {value}" for name, value in said.headers.items()), ""])
    assert answers[0](b"/write", b"") is None


@pytest.mark.usefixtures("remembered")
def test_no_other_request_offers_answers_at_once() -> None:
    async def act() -> None:
        site, _ = offering_site()
        await site.ask("/ping", method="HEAD")
        await site.ask("/query?q=SHOW+DATABASES", method="GET", authorization="Bearer one")
        await site.ask("/write", LINE, authorization="Bearer one")
        assert not site.app.answers  # type: ignore[attr-defined]

    on_loop(act())
