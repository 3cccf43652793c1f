"""Acknowledging one alert by REST: until when, who, and what is refused."""

from typing import Any

import pytest
from django.test import Client

from alerts import rulebook
from alerts.models import Episode, EpisodeStatus
from alerts.models.telling import Acknowledgement
from alerts.telling.limits import ACKNOWLEDGE_MS
from spm.accounts.models import AuditEntry
from tests.alerts.conftest import draft
from tests.support.people import Tenant

pytestmark = pytest.mark.django_db


def episode_of(tenant: Tenant) -> Episode:
    """An open alert."""
    rule = rulebook.write(tenant.app, draft(), by=tenant.owner, now_ms=1)
    times = {"start_ms": 1, "created_ms": 1, "changed_ms": 1}
    return Episode.objects.create(rule=rule, fingerprint="f", labels={}, severity="warning", **times)


def take(client: Client, tenant: Tenant, episode: Episode, **body: Any) -> Any:
    """The answer to an acknowledgement."""
    address = f"/api/v1/organisations/{tenant.organisation.pk}/alerts/{episode.pk}/acknowledge"
    return client.post(address, body, content_type="application/json")


@pytest.mark.parametrize(
    ("body", "span_ms"),
    [
        pytest.param({}, ACKNOWLEDGE_MS, id="a day unless it says how long"),
        pytest.param({"for_ms": 3_600_000}, 3_600_000, id="a snooze of an hour"),
    ],
)
def test_an_alert_is_taken_until_a_time_and_who_did_it_is_noted(
    desk: Client, alpha: Tenant, body: dict[str, Any], span_ms: int
) -> None:
    episode = episode_of(alpha)
    taken = take(desk, alpha, episode, **body).json()
    assert (taken["alert"], taken["by"]) == (episode.pk, alpha.owner.username)
    assert taken["until_ms"] - taken["at_ms"] == span_ms
    act = AuditEntry.objects.get(action="alert.acknowledge")
    assert (act.actor, act.organisation, act.detail) == (alpha.owner, alpha.organisation, {"episode": episode.pk})


def test_taking_an_alert_again_sets_another_end(desk: Client, alpha: Tenant) -> None:
    episode = episode_of(alpha)
    take(desk, alpha, episode)
    second = take(desk, alpha, episode, for_ms=60_000).json()
    assert Acknowledgement.objects.get().until_ms == second["until_ms"] == second["at_ms"] + 60_000


def test_an_alert_that_is_over_is_not_taken(desk: Client, alpha: Tenant) -> None:
    episode = episode_of(alpha)
    Episode.objects.update(status=EpisodeStatus.ENDED, end_ms=9)
    answer = take(desk, alpha, episode)
    assert (answer.status_code, "over" in answer.json()["error"]) == (409, True)
    assert not Acknowledgement.objects.exists()


@pytest.mark.parametrize("for_ms", [0, ACKNOWLEDGE_MS + 1, "soon"])
def test_a_span_that_no_acknowledgement_has_is_refused(desk: Client, alpha: Tenant, for_ms: Any) -> None:
    answer = take(desk, alpha, episode_of(alpha), for_ms=for_ms)
    assert (answer.status_code, "for_ms" in answer.json()) == (400, True)


def test_an_alert_of_another_organisation_is_not_there(desk: Client, alpha: Tenant, beta: Tenant) -> None:
    assert take(desk, alpha, episode_of(beta)).status_code == 404
    assert not Acknowledgement.objects.exists()
