"""A real server with a real store, and Chromium in front of it.

The server runs in a thread of the test process, so that both see the same database. Every test gets a page that fails
the test on script errors, on answers of 500 and on violations of the content policy.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from django.contrib.staticfiles.handlers import StaticFilesHandler
from django.core.handlers.wsgi import WSGIHandler
from django.db import connections
from django.test import Client
from django.test.testcases import LiveServerThread
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Playwright,
    Response,
    ViewportSize,
    expect,
    sync_playwright,
)

from spm import query
from spm.clock import SystemClock
from tests.conftest import missing_service
from tests.support import process_state, sample_app
from tests.support.people import Tenant, make_tenant

DRAWN_MS = 30_000  # on a machine that compiles kernels at the same time
# Its form without windows takes a third of the processor time: nothing is composed for a screen.
CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium") or "/usr/bin/chromium"
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PICTURES = Path(__file__).parent / "screenshots"
WIDTH, HEIGHT = 1360, 860
LOOKS: dict[str, dict[str, Any]] = {"light": {}, "dark": {"dark": True}, "narrow": {"width": 390, "height": 844}}
PATIENCE_MS = 20_000  # the first page on a new machine compiles kernels
expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="session")
def playwright() -> Iterator[Playwright]:
    """What drives browsers."""
    # Playwright's loop runs in this thread, and Django takes any loop for an asynchronous caller.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"
    with sync_playwright() as driver:
        yield driver
    del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture(scope="session")
def browser(playwright: Playwright) -> Iterator[Browser]:
    """One Chromium for all tests."""
    if not Path(CHROMIUM).exists():
        missing_service("Chromium is not installed")
    browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
    yield browser
    browser.close()


@pytest.fixture
def own_store(settings: object, tmp_path: Path) -> Iterator[str]:
    """An empty store; returns its address."""
    settings.SPM_STORE_URL = f"lmdb://{tmp_path}/store"  # type: ignore[attr-defined]  # pytest-django's own wrapper
    settings.SPM_DATA = tmp_path  # type: ignore[attr-defined]
    query.configure(settings.SPM_STORE_URL)  # type: ignore[attr-defined]
    process_state.forget_tokens()
    process_state.forget_periods()
    yield settings.SPM_STORE_URL  # type: ignore[attr-defined]
    process_state.forget_tokens()


@pytest.fixture
def alpha(transactional_db: None, own_store: str) -> Tenant:
    """An organisation with an app that has no data yet."""
    return make_tenant("alpha")


@pytest.fixture
def fleet(alpha: Tenant, own_store: str) -> Tenant:
    """The organisation with two hours of data of four hosts."""
    sample_app.fill(own_store, alpha.app.pk, now_ms=SystemClock().now_ms())
    return alpha


@pytest.fixture
def server(transactional_db: None, own_store: str) -> Iterator[str]:
    """The address of the running product, which serves plain scripts and styles."""
    with serving(StaticFilesHandler) as address:
        yield address


@contextmanager
def serving(static_handler: type[WSGIHandler]) -> Iterator[str]:
    """Run the product in a thread, with this handler of static files in front of it; yields its address."""
    shared = {c.alias: c for c in connections.all() if c.vendor == "sqlite" and c.is_in_memory_db()}  # type: ignore[attr-defined]
    for connection in shared.values():
        connection.inc_thread_sharing()
    thread = LiveServerThread("localhost", static_handler, connections_override=shared)
    thread.daemon = True
    thread.start()
    thread.is_ready.wait()
    if thread.error:
        raise thread.error
    yield f"http://localhost:{thread.port}"
    thread.terminate()  # sharing stays on: threads of the last requests may close their connection a little later


@pytest.fixture
def open_page(browser: Browser, server: str) -> Iterator[Callable[..., Page]]:
    """Open pages: ``open_page(dark=True, width=390)``; a problem in one of them fails the test at its end."""
    contexts: list[BrowserContext] = []
    problems: list[str] = []

    def open_one(*, dark: bool = False, width: int = WIDTH, height: int = HEIGHT, scale: float = 1) -> Page:
        scheme: Literal["dark", "light"] = "dark" if dark else "light"
        size = ViewportSize(width=width, height=height)
        context = browser.new_context(
            viewport=size, device_scale_factor=scale, color_scheme=scheme, base_url=server, locale="en-GB"
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: problems.append(f"script: {error}"))
        page.on("console", lambda message: problems.extend(_complaint(message)))
        page.on("response", lambda answer: problems.extend(_failure(answer)))
        return page

    yield open_one
    for context in contexts:
        context.close()
    assert problems == []


def _complaint(message: ConsoleMessage) -> list[str]:
    """Return errors of the console; ``_failure`` reports failed loads with their address."""
    mine = message.type == "error" and not message.text.startswith("Failed to load resource")
    return [f"console: {message.text}"] if mine else []


def _failure(answer: Response) -> list[str]:
    """Return answers that no page should get; the page itself may be missing, and an expression may be wrong."""
    missing = answer.status in (401, 403, 404) and answer.request.resource_type != "document"
    return [f"{answer.status} {answer.url}"] if missing or answer.status >= 500 else []


@pytest.fixture
def page(open_page: Callable[..., Page]) -> Page:
    """A page in the usual size, in light colours, without a session."""
    return open_page()


def show_as(page: Page, look: str) -> None:
    """Give a page that is open already the colours and the size of one of ``LOOKS``: cheaper than to load it again.

    Nothing moves from then on, so that no colour is seen on its way to another.
    """
    how = LOOKS[look]
    page.emulate_media(color_scheme="dark" if how.get("dark") else "light", reduced_motion="reduce")
    page.set_viewport_size(ViewportSize(width=how.get("width", WIDTH), height=how.get("height", HEIGHT)))


def fits_each_screen(page: Page, name: str) -> None:
    """Take a picture of a page in each of ``LOOKS``, and check that nothing is wider than the screen."""
    for look in LOOKS:
        show_as(page, look)
        fits(page, f"{name}-{look}")
    show_as(page, "light")


def fits(page: Page, name: str, *, full_page: bool = True) -> None:
    """Take a picture, and check that nothing is wider than the screen, once charts have taken its size."""
    for _ in range(50):
        if is_narrow := page.evaluate("document.documentElement.scrollWidth <= innerWidth"):
            break
        page.wait_for_timeout(100)
    picture(page, name, full_page=full_page)
    assert is_narrow, f"{name} is wider than the screen"


def enter(page: Page, tenant: Tenant, address: str) -> None:
    """Give the browser a session of the owner, without the form."""
    client = Client()
    client.force_login(tenant.owner)
    page.context.add_cookies([{"name": "sessionid", "value": client.cookies["sessionid"].value, "url": address}])


def log_in(page: Page, tenant: Tenant) -> None:
    """Log in by the form."""
    page.goto("/login")
    page.get_by_label("Login").fill(tenant.owner.get_username())
    page.get_by_label("Password").fill("correct horse")
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/apps/**")


def drawn(page: Page, count: int = 1) -> None:
    """Wait until this many charts show data; those out of sight are looked at first."""
    if count:
        for chart in range(count):
            page.locator("[data-chart]").nth(chart).scroll_into_view_if_needed()
        expect(page.locator("[data-chart][data-state=drawn]").nth(count - 1)).to_be_attached(timeout=DRAWN_MS)


def picture(page: Page, name: str, *, full_page: bool = True) -> None:
    """Save a screenshot for people to look at."""
    PICTURES.mkdir(exist_ok=True)
    page.screenshot(path=PICTURES / f"{name}.png", full_page=full_page)
