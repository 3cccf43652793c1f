"""The page of events: what it lists, how people write one, and who may."""

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from spm.accounts.models import App
from spm.events.models import Event
from tests.alerts.conftest import START_MS, AlertingWorld

pytestmark = pytest.mark.django_db
Login = Callable[[str], Client]


@pytest.fixture(autouse=True)
def page_clock(world: AlertingWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alerts.pages.events._clock", world.clock)


def event(app: App, text: str, *, kind: str = "deploy", at_ms: int = START_MS, **fields: Any) -> Event:
    """An event that somebody posted."""
    values = {"event_id": text, "made_ms": at_ms, "is_posted": True, **fields}
    return Event.objects.create(organisation=app.organisation, app=app, kind=kind, text=text, at_ms=at_ms, **values)


def text(client: Client, query: str = "") -> str:
    answer = client.get(f"/alerts/events{query}")
    assert answer.status_code == 200
    return " ".join(answer.content.decode().split())


def test_events_are_listed_newest_first_with_links_to_what_they_are_about(app: App, login: Login) -> None:
    event(app, "api 2.4.1", link="https://ci.example.org/7", author="edda")
    event(app, "CPU is busy: open", kind="alert", at_ms=START_MS + 1, body={"episode": 7, "labels": {"host": "a"}},
          is_posted=False)  # fmt: skip
    page = text(login("vera"))
    assert page.index("CPU is busy: open") < page.index("api 2.4.1")
    assert '<a href="/alerts/7">CPU is busy: open</a> <small class="quiet">host=a' in page
    assert '<a href="https://ci.example.org/7" rel="noopener noreferrer nofollow">api 2.4.1</a>' in page


@pytest.mark.parametrize(
    "body", [{"episode": "7"}, {"episode": -1}, {"episode": 10**30}, {"episode": [], "labels": 5}], ids=str
)
def test_a_body_that_somebody_wrote_breaks_no_page(app: App, login: Login, body: dict[str, Any]) -> None:
    event(app, "odd <one>", kind="alert", body=body)
    assert "odd &lt;one&gt;" in text(login("vera"))


@pytest.mark.parametrize(
    ("query", "texts"),
    [
        ("", {"deployed", "noted"}),
        ("?kind=note", {"noted"}),
        ("?kind=own", set()),
        ("?cursor=1.1", set()),
        ("?cursor=x", {"deployed", "noted"}),
    ],
)
def test_the_list_is_filtered_by_kind(app: App, login: Login, query: str, texts: set[str]) -> None:
    event(app, "deployed")
    event(app, "noted", kind="note")
    page = text(login("vera"), query)
    assert {each for each in ("deployed", "noted") if f">{each}<" in page.replace(" </th>", "</th>")} == texts


def test_a_longer_list_goes_on_also_among_events_of_one_time(
    app: App, login: Login, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("alerts.pages.events.SHOWN", 1)
    first, second = event(app, "first"), event(app, "second")
    page = text(login("vera"))
    assert f'id="event-{second.pk}"' in page
    assert f'id="event-{first.pk}"' not in page
    assert f"cursor={START_MS}.{second.pk}" in page
    older = text(login("vera"), f"?cursor={START_MS}.{second.pk}")
    assert f'id="event-{first.pk}"' in older
    assert "Older ones" not in older


def test_a_person_writes_an_event_and_gets_a_position_for_it(app: App, login: Login) -> None:
    posted = {"kind": "deploy", "text": "api 2.4.1", "link": "https://ci.example.org/7"}
    assert login("edda").post(f"/alerts/events?app={app.pk}", posted).status_code == 302
    row = Event.objects.get()
    assert (row.kind, row.text, row.author, row.at_ms, row.is_posted) == (
        "deploy", "api 2.4.1", "edda", START_MS, True,
    )  # fmt: skip
    assert row.position == 1


@pytest.mark.parametrize(
    "posted",
    [{"kind": "deploy"}, {"kind": "alert", "text": "x"}, {"kind": "note", "text": "x", "link": "javascript:alert(1)"}],
    ids=["no text", "a kind of the product", "a script"],
)
def test_a_wrong_event_is_not_written_and_the_form_says_why(app: App, login: Login, posted: dict[str, str]) -> None:
    answer = login("edda").post("/alerts/events", posted)
    assert answer.status_code == 200
    assert "errorlist" in answer.content.decode()
    assert not Event.objects.exists()


def test_viewers_read_and_do_not_write(app: App, login: Login) -> None:
    assert "Write an event" not in text(login("vera"))
    assert login("vera").post("/alerts/events", {"kind": "note", "text": "x"}).status_code == 403
    assert "Write an event" in text(login("edda"))


def test_another_organisations_events_are_not_found(app: App, foreign_app: App, login: Login) -> None:
    event(app, "ours only")
    assert "ours only" not in text(login("mallory"))
    assert login("mallory").get(f"/alerts/events?app={app.pk}").status_code == 404
    assert login("mallory").post(f"/alerts/events?app={app.pk}", {"kind": "note", "text": "x"}).status_code == 404


def test_an_app_without_events_says_so(login: Login, app: App) -> None:
    assert "No events yet" in text(login("vera"))
    assert "No event of this kind" in text(login("vera"), "?kind=note")
