"""Listeners without a server: an endpoint with a watch and rights that a test sets, and clients that speak ASGI."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from frontend.events.change_watch import Look
from frontend.events.endpoint import EventEndpoint
from frontend.events.event_ids import NOTHING_SEEN, Feed, with_seen
from frontend.events.hub import EventHub, News
from frontend.events.positions import PositionStreams
from frontend.events.rights import Credential, Grant, NotSignedIn
from frontend.events.streams import EventStreams
from spm.clock import SystemClock
from spm.web.fair_pool import FairPool

PATIENCE_S = 60


class SetWatch:
    """A watch that brings what a test puts in."""

    def __init__(self) -> None:
        self.news: list[News] = []
        self.looks: list[list[int]] = []
        self.error: Exception | None = None
        self.seen = NOTHING_SEEN

    def look(self, apps: Sequence[int]) -> Look:
        """Return what was put in since the last look."""
        self.looks.append(list(apps))
        if self.error is not None:
            raise self.error
        news, self.news = tuple(self.news), []
        return Look(news, self.seen)

    def alert(self, app: int) -> None:
        """Let the next look find an alert."""
        self.seen = with_seen(self.seen, Feed.ALERTS, self.seen[Feed.ALERTS] + 1)
        number = self.seen[Feed.ALERTS]
        self.news.append(News(app, Feed.ALERTS, number, "alert", b'{"id":%d}' % number))


@dataclass
class Place:
    """An endpoint, what it watches, and the tokens that are valid: token → app."""

    hub: EventHub = field(default_factory=EventHub)
    watch: SetWatch = field(default_factory=SetWatch)
    valid: dict[str, int] = field(default_factory=lambda: {"one": 1, "two": 2})
    check_error: Exception | None = None
    quiet_s: float = 30.0

    def __post_init__(self) -> None:
        pool = FairPool("names", threads=2, threads_max=2, per_key_max=2, waiting_max=100, per_key_waiting_max=100)
        clock = SystemClock()
        self.streams = EventStreams(
            lambda: self.watch,
            pool,
            clock,
            check=self._check,
            hub=self.hub,
            look_s=0.01,
            quiet_s=self.quiet_s,
        )
        self.endpoint = EventEndpoint(self.streams, PositionStreams(pool, clock), clock)

    def _check(self, credential: Credential) -> Grant:
        if self.check_error is not None:
            raise self.check_error
        if credential.token not in self.valid:
            raise NotSignedIn("the token is unknown")
        app = self.valid[credential.token]
        return Grant(app, app)

    async def ask(self, query: str = "", token: str = "one", **more: Any) -> "Exchange":
        """Begin a request and return its exchange, which runs in a task."""
        exchange = Exchange(query, token, **more)
        exchange.task = asyncio.get_running_loop().create_task(
            self.endpoint(exchange.scope, exchange.receive, exchange.send)
        )
        return exchange


class Exchange:
    """One request and its answer as it comes."""

    def __init__(self, query: str, token: str, *, accept: str = "", method: str = "GET", last: str = "") -> None:
        headers = [(b"authorization", f"Bearer {token}".encode())] if token else []
        headers += [(b"accept", accept.encode()), (b"last-event-id", last.encode())]
        self.scope = {
            "type": "http",
            "method": method,
            "scheme": "http",
            "path": "/api/v1/events",
            "query_string": query.encode(),
            "headers": headers,
            "client": ("127.0.0.1", 1),
        }
        self.task: asyncio.Task[None]
        self.status, self.headers, self.body, self.is_whole = 0, dict[str, str](), b"", False
        self.reads = asyncio.Event()  # cleared: the reader takes nothing
        self.reads.set()
        self._left, self._received = asyncio.Event(), False

    async def receive(self) -> dict[str, Any]:
        """The request's end, then that the client has left."""
        if not self._received:
            self._received = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        """Take a piece of the answer, when the reader takes any."""
        await self.reads.wait()
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            assert not self.is_whole
            self.body += message["body"]
            self.is_whole = not message.get("more_body")

    def leave(self) -> None:
        """Close the connection."""
        self._left.set()

    async def end(self) -> "Exchange":
        """Wait for the end of the answer."""
        await asyncio.wait_for(self.task, PATIENCE_S)
        return self

    async def until(self, text: str) -> None:
        """Wait until a text has come."""
        async with asyncio.timeout(PATIENCE_S):
            while text.encode() not in self.body:
                await asyncio.sleep(0.002)

    @property
    def json(self) -> Any:
        """The answer's body."""
        return json.loads(self.body)

    @property
    def events(self) -> list[tuple[str, Any]]:
        """The blocks of a stream that show something: (event, data)."""
        shown = []
        for block in self.body.decode().split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
            if "data" in fields:
                shown.append((fields["event"], json.loads(fields["data"])))
        return shown
