"""Maintenance windows by REST: written, replaced, deleted, refused; and when they hold next."""

from typing import Any

import pytest
from django.test import Client

from alerts.models.telling import MuteTiming
from alerts.telling import limits
from spm.accounts.models import AuditEntry
from spm.clock import SystemClock
from tests.support.people import Tenant

pytestmark = pytest.mark.django_db
HOUR_MS, WEEK_MS = 3_600_000, 7 * 86_400_000
WINDOW = {"name": "Backup", "matchers": 'host="a"', "cron": "0 2 * * 6", "zone": "UTC", "duration_ms": HOUR_MS}


def at(tenant: Tenant, rest: str = "") -> str:
    """An address of the organisation's maintenance windows."""
    return f"/api/v1/organisations/{tenant.organisation.pk}/maintenance-windows{rest}"


def post(client: Client, tenant: Tenant, **changes: Any) -> Any:
    """The answer to a new window."""
    return client.post(at(tenant), {**WINDOW, **changes}, content_type="application/json")


def test_a_window_is_read_as_it_was_written_with_the_next_three_times(desk: Client, alpha: Tenant) -> None:
    answer = post(desk, alpha)
    window = answer.json()
    assert answer.status_code == 201
    assert {name: window[name] for name in WINDOW} == WINDOW
    first, second, third = window["following"]
    assert first["to_ms"] - first["from_ms"] == HOUR_MS
    assert second["from_ms"] - first["from_ms"] == third["from_ms"] - second["from_ms"] == WEEK_MS
    assert first["to_ms"] > SystemClock().now_ms() > first["to_ms"] - WEEK_MS - HOUR_MS
    assert desk.get(at(alpha)).json() == {"maintenance_windows": [window], "next": None}


def test_a_window_is_replaced_and_deleted_and_each_act_is_noted(desk: Client, alpha: Tenant) -> None:
    one = at(alpha, f"/{post(desk, alpha).json()['id']}")
    changed = desk.put(one, {**WINDOW, "zone": "Europe/Berlin"}, content_type="application/json")
    assert (changed.status_code, changed.json()["zone"]) == (200, "Europe/Berlin")
    assert desk.delete(one).status_code == 204
    assert not MuteTiming.objects.exists()
    acts = AuditEntry.objects.filter(action__startswith="mutetiming.").order_by("pk")
    assert [(act.action, act.actor) for act in acts] == [
        (f"mutetiming.{verb}", alpha.owner) for verb in ("write", "write", "delete")
    ]


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        pytest.param({"cron": "never"}, "five fields", id="no cron expression"),
        pytest.param({"cron": "0 0 30 2 *"}, "names no time", id="a day that never comes"),
        pytest.param({"zone": "Mars/Olympus"}, "time zone", id="no time zone"),
        pytest.param({"duration_ms": 8 * 86_400_000}, "duration_ms", id="longer than a week"),
        pytest.param({"matchers": 'host=~".*"'}, "matcher", id="matchers of everything"),
    ],
)
def test_a_window_that_cannot_be_is_refused_with_what_is_wanted(
    desk: Client, alpha: Tenant, changes: dict[str, Any], wanted: str
) -> None:
    answer = post(desk, alpha, **changes)
    assert (answer.status_code, wanted in answer.content.decode()) == (400, True)
    assert not MuteTiming.objects.exists()


def test_one_window_over_the_bound_is_refused(desk: Client, alpha: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MUTE_TIMINGS_MAX", 1)
    assert [post(desk, alpha).status_code for _ in range(2)] == [201, 422]


def test_windows_of_another_organisation_are_not_there(desk: Client, alpha: Tenant, beta: Tenant) -> None:
    foreign = MuteTiming.objects.create(organisation=beta.organisation, **WINDOW)
    assert desk.get(at(alpha)).json()["maintenance_windows"] == []
    assert desk.put(at(alpha, f"/{foreign.pk}"), WINDOW, content_type="application/json").status_code == 404
    assert desk.delete(at(alpha, f"/{foreign.pk}")).status_code == 404
