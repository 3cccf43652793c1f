"""Each answer that is refused for a bound names the bound, its size, and where an operator changes it."""

import asyncio
import re
from pathlib import Path

import pytest

from frontend.events.hub import EventHub, ListenersFull
from ingest.accept.admission import over_past_hours
from ingest.accept.rate_allowance import TooFast
from spm import limits
from spm.errors import QueryRefused
from spm.query.request.admission import QueryAdmission
from spm.web.dispatch import _pool
from spm.web.fair_pool import PoolFull
from spm.web.http_protocol import Connections, HttpBounds
from tests.spm.web.http_protocol.test_connections import Fake
from tests.support.event_loop import on_loop

SETTINGS = (Path(__file__).parents[2] / ".env.example").read_text()


def check_places(text: str, name: str) -> None:
    """Each bound and setting that a text names is one; the wanted one is among them."""
    names = re.findall(r"[A-Z]+(?:_[A-Z]+)+", text)
    assert name in names
    for each in names:
        assert hasattr(limits, each) or f"#{each}=" in SETTINGS, each


@pytest.mark.parametrize(
    ("name", "size"),
    [("PAGE_WAITING_KEY_MAX", "1 requests of one user"), ("PAGE_WAITING_MAX", "1 requests of all users")],
)
def test_a_refusal_names_the_bound_of_requests_that_wait(name: str, size: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, name, 1)

    async def act() -> str:
        pool = _pool("pages", 1)
        pool._start("a")  # its only thread
        waiting = asyncio.create_task(pool.run("a", lambda: None))
        await asyncio.sleep(0)
        with pytest.raises(PoolFull) as caught:
            await pool.run("a", lambda: None, wait_s=1)
        waiting.cancel()
        pool.close()
        return str(caught.value)

    text = on_loop(act())
    assert size in text
    check_places(text, name)


def test_a_refusal_names_the_bound_of_queries() -> None:
    admission = QueryAdmission(running_max=1, waiting_max=0)
    with admission.admit(1), pytest.raises(QueryRefused) as caught, admission.admit(1):
        pass
    assert "1 queries of your organisation are running and 0 more wait" in str(caught.value)
    check_places(str(caught.value), "QUERY_PARALLEL_MAX")


@pytest.mark.parametrize(
    ("of_organisation", "of_all", "size", "name"),
    [
        (0, 9, "at most 0 in one web process", "EVENTS_LISTENERS_ORGANISATION_MAX"),
        (9, 0, "at most 0", "SPM_WEB_PROCESSES"),
    ],
)
def test_a_refusal_names_the_bound_of_listeners(of_organisation: int, of_all: int, size: str, name: str) -> None:
    hub = EventHub(organisation_max=of_organisation, listeners_max=of_all)
    with pytest.raises(ListenersFull) as caught:
        hub.join(1, 1, lambda: None)
    assert size in str(caught.value)
    check_places(str(caught.value), name)


def test_a_refusal_names_the_rate_of_samples() -> None:
    text = str(TooFast(1_000, 3.0))
    assert "at most 1,000 a second" in text
    check_places(text, "SPM_APP_RATE_MAX")


def test_a_rejection_names_the_bound_of_hours_of_the_past() -> None:
    text = over_past_hours(20_000)
    assert "20,000 such hours" in text
    check_places(text, "SPM_APP_PAST_HOURS_MAX")


@pytest.mark.parametrize(
    ("bounds", "size", "name"),
    [
        (HttpBounds(address_connections_max=0), "All 0 connections that your address", "SPM_ADDRESS_CONNECTIONS_MAX"),
        (HttpBounds(connections_max=0), "All 0 connections that this web server", "SPM_WEB_PROCESSES"),
    ],
)
def test_a_refusal_names_the_bound_of_connections(bounds: HttpBounds, size: str, name: str) -> None:
    table = Connections(bounds)
    text = table.add(Fake(table), "1.2.3.4")
    assert size in text
    check_places(text, name)
