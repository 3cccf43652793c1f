"""The page of one alert: its evidence, both charts, state changes, delivery, and what a person does there."""

import re
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest
from django.test import Client

from alerts.models import AlertEvent, Episode, EpisodeStatus, Rule
from alerts.models.telling import Acknowledgement, Silence
from alerts.telling.alert_facts import matched_labels
from alerts.telling.decide.matchers import read_matchers, select
from alerts.telling.limits import GROUP_WAIT_MS, SNOOZE_MS
from spm import query
from spm.accounts.models import App
from spm.query.request.admission import QueryAdmission
from tests.alerts.conftest import AlertingWorld
from tests.alerts.knowledge_world import Installation

pytestmark = pytest.mark.django_db


@pytest.fixture
def installation(
    app: App, make_rule: Callable[..., Rule], world: AlertingWorld, monkeypatch: pytest.MonkeyPatch
) -> Installation:
    """An app whose rule fired once, for one step, with a mail for it."""
    installation = Installation(app.pk, world.clock)
    monkeypatch.setattr(query, "configure", lambda url: None)
    monkeypatch.setattr(query, "storage_for", lambda number: installation.new_storage())
    monkeypatch.setattr("alerts.pages.alert.views._clock", world.clock)
    make_rule(annotations={"runbook_url": "https://run/{{ $labels.host }}"})
    installation.run_quietly(40)  # each test has it anew: a little before and after is enough for the charts
    step_ms = -(-installation.clock.now_ms() // 10_000) * 10_000
    installation.run_quietly(12)
    installation.send("a", step_ms, 97.5)
    installation.run_quietly(40)
    world.clock.advance(GROUP_WAIT_MS)
    world.tell()
    return installation


def text_of(client: Client) -> str:
    return " ".join(client.get(f"/alerts/{Episode.objects.get().pk}").content.decode().split())


def test_an_alert_shows_what_was_seen_and_by_which_operation(installation: Installation, login: Any) -> None:
    page = text_of(login("vera"))
    episode = Episode.objects.get()
    operation = AlertEvent.objects.get(at_ms=episode.start_ms).seq
    assert f"operation {operation}, which judged the steps up to" in page
    assert "97.5 at the step" in page
    assert "<code>cpu</code> &gt; 90" in page
    assert re.search(r"<dt>Complete to</dt><dd><time [^>]*>20", page)
    assert "https://run/a" in page


def test_what_is_retracted_since_is_seen_in_the_chart_of_then_alone(installation: Installation, login: Any) -> None:
    start_ms = Episode.objects.get().start_ms
    installation.retract(start_ms - 1, start_ms)
    page = text_of(login("vera"))
    then, now = page[page.index("As it was known when the alert began") :].split("As it is known now", 1)
    highest = [part[part.index('class="edge">') :][13:].split("<")[0] for part in (then, now)]
    assert [float(each) > 97 for each in highest] == [True, False]


def test_its_charts_wait_for_a_place_among_the_queries_and_say_if_there_is_none(
    installation: Installation, login: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    admission = QueryAdmission(running_max=1, waiting_max=0)
    monkeypatch.setattr("alerts.expressions.shared_admission", lambda path: admission)
    with admission.admit(Episode.objects.get().rule.app.organisation_id):
        page = text_of(login("vera"))
    assert page.count("1 queries of your organisation are running") == 2
    assert "97.5 at the step" in page


def test_an_alert_shows_its_notifications_and_their_delivery(installation: Installation, login: Any) -> None:
    page = text_of(login("vera"))
    assert "ops@example.org" in page
    assert '<span class="badge ok">sent</span>' in page


@pytest.mark.parametrize(
    ("fields", "for_ms"),
    [({"snooze": "1"}, SNOOZE_MS), ({"acknowledge": "1"}, 24 * 3_600_000), ({}, 24 * 3_600_000)],
    ids=["snoozed", "acknowledged", "acknowledged unless it says otherwise"],
)
def test_an_open_alert_is_taken_there(
    installation: Installation, login: Any, fields: dict[str, str], for_ms: int
) -> None:
    Episode.objects.update(status=EpisodeStatus.OPEN, end_ms=None)
    episode = Episode.objects.get().pk
    assert login("vera").post(f"/alerts/{episode}/take").status_code == 403
    assert login("edda").post(f"/alerts/{episode}/take", fields).status_code == 302
    taken = Acknowledgement.objects.get()
    assert taken.until_ms - taken.at_ms == for_ms
    assert "Acknowledged by edda" in text_of(login("edda"))


def test_one_that_is_over_cannot_be_taken(installation: Installation, login: Any) -> None:
    assert Episode.objects.get().end_ms is not None
    login("edda").post(f"/alerts/{Episode.objects.get().pk}/take")
    assert not Acknowledgement.objects.exists()


def test_its_matchers_silence_alerts_like_it(installation: Installation, login: Any) -> None:
    page = text_of(login("edda"))
    assert "alertname=&quot;CPU is busy&quot;, app=&quot;Shop&quot;, host=&quot;a&quot;" in page
    assert "Other alerts" not in page
    matchers = 'alertname="CPU is busy", app="Shop", host="a", severity="warning"'
    app = Episode.objects.get().rule.app_id
    login("edda").post(f"/alerts/silences?app={app}", {"matchers": matchers, "duration_ms": "1h"})
    assert Silence.objects.get().matchers == matchers


@pytest.mark.parametrize("length", [1, 190], ids=["short values", "long values"])
def test_the_matchers_of_an_alert_with_many_labels_silence_it(
    installation: Installation, login: Any, length: int
) -> None:
    many = {f"A{number:02}.x": str(number) * length for number in range(40)}
    Episode.objects.update(labels={**Episode.objects.get().labels, **many})
    app = Episode.objects.get().rule.app_id
    page = login("edda").get(f"/alerts/{Episode.objects.get().pk}").content.decode()
    assert "Other alerts" in page
    matchers = unescape(page.split('id="id_matchers" name="matchers" value="')[1].split('"')[0])
    login("edda").post(f"/alerts/silences?app={app}", {"matchers": matchers, "duration_ms": "1h"})
    chosen = read_matchers(Silence.objects.get().matchers)
    assert {"alertname", "app"} < {each.name for each in chosen}
    assert select(chosen, [matched_labels(Episode.objects.get())]).tolist() == [True]


def test_an_alert_of_another_organisation_does_not_exist(
    installation: Installation, foreign_app: App, login: Any
) -> None:
    assert login("mallory").get(f"/alerts/{Episode.objects.get().pk}").status_code == 404
