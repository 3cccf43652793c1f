"""Claims about spm/web/dispatch.py: a slow part of the site never takes the threads of another."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from spm import limits
from spm.clock import SystemClock
from spm.web.dispatch import Dispatcher, Site
from spm.web.http_protocol import Connections, HttpBounds
from tests.support.event_loop import on_loop

MANY = limits.LOGIN_THREADS + limits.SPARE_THREADS + 20


class Push:
    """No push comes in these tests."""

    async def __call__(self, *_: Any) -> None:
        raise AssertionError

    def close(self) -> None:
        """Nothing waits."""


class Pages:
    """Answers every page at once, but holds up passwords that are sent until it may go on."""

    def __init__(self) -> None:
        self.go_on = threading.Event()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterator[bytes]:
        if environ["REQUEST_METHOD"] == "POST":
            self.go_on.wait(30)
        start_response("200 OK", [("Content-Type", "text/plain")])
        return iter([b"done"])


async def ask(dispatcher: Dispatcher, method: str, path: str, host: bytes = b"testserver") -> int:
    """Send a request without a body; return the status of its answer."""
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"host", host)],
        "client": ("127.0.0.1", 5),
        "server": ("127.0.0.1", 80),
        "scheme": "http",
        "extensions": {},
    }
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    await dispatcher(scope, receive, send)
    return statuses[0]


@pytest.mark.parametrize("path", ["/login", "/account/password", "/admin/login/"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_the_page_of_a_password_form_comes_while_many_passwords_are_checked(path: str, method: str) -> None:
    pages = Pages()

    async def story() -> None:
        site = Site(lambda _: None, lambda _: Push(), pages, lambda: pages)  # type: ignore[arg-type, return-value]
        dispatcher = Dispatcher(site, Connections(HttpBounds()), SystemClock())
        guesses = [asyncio.create_task(ask(dispatcher, "POST", path)) for _ in range(MANY)]
        await asyncio.sleep(0.05)
        try:
            assert await asyncio.wait_for(ask(dispatcher, method, path), 10) == 200
            assert sum(not guess.done() for guess in guesses) >= limits.LOGIN_THREADS  # the rest is refused
        finally:
            pages.go_on.set()
            await asyncio.gather(*guesses, return_exceptions=True)
            dispatcher.close()

    on_loop(story())


@pytest.mark.parametrize(
    ("method", "path", "host", "status"),
    [
        ("POST", "/login", b"testserver", 429),
        ("GET", "/login", b"testserver", 200),
        ("POST", "/signup", b"testserver", 200),
        ("POST", "/login", b"elsewhere.example", 200),
    ],
    ids=["a login", "its page", "another form", "a host that is not ours"],
)
def test_a_login_alone_is_refused_on_the_event_loop(method: str, path: str, host: bytes, status: int) -> None:
    pages, loops = Pages(), set[asyncio.AbstractEventLoop]()
    pages.go_on.set()

    def refuse(_environ: dict[str, Any], start_response: Any) -> list[bytes]:
        assert asyncio.get_running_loop() in loops
        start_response("429 Too Many Requests", [])
        return [b""]

    async def story() -> None:
        loops.add(asyncio.get_running_loop())
        site = Site(lambda _: None, lambda _: Push(), pages, lambda: pages, refuse_login=refuse)  # type: ignore[arg-type, return-value]
        dispatcher = Dispatcher(site, Connections(HttpBounds()), SystemClock())
        try:
            assert await ask(dispatcher, method, path, host) == status
        finally:
            dispatcher.close()

    on_loop(story())
