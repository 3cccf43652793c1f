"""Silences by REST: create, list, end; what is refused. Who may call what, ``test_rights.py`` walks."""

from typing import Any

import pytest
from django.test import Client

from alerts.models.telling import Silence
from alerts.telling import limits
from spm.accounts.models import AuditEntry
from spm.clock import SystemClock
from tests.support.people import Tenant

pytestmark = pytest.mark.django_db
HOUR_MS = 3_600_000


def at(tenant: Tenant, rest: str = "") -> str:
    """An address of the organisation's silences."""
    return f"/api/v1/organisations/{tenant.organisation.pk}/silences{rest}"


def post(client: Client, tenant: Tenant, **changes: Any) -> Any:
    """The answer to a new silence, an hour long."""
    body = {"matchers": 'host="a"', "to_ms": SystemClock().now_ms() + HOUR_MS, **changes}
    return client.post(at(tenant), body, content_type="application/json")


def test_a_silence_begins_now_and_is_read_as_it_was_written(desk: Client, alpha: Tenant) -> None:
    answer = post(desk, alpha, comment="disk is replaced")
    silence = answer.json()
    assert answer.status_code == 201
    assert abs(silence["from_ms"] - SystemClock().now_ms()) < HOUR_MS / 10
    assert (silence["matchers"], silence["comment"]) == ('host="a"', "disk is replaced")
    assert silence["created_by"] == alpha.owner.username
    assert desk.get(at(alpha, f"/{silence['id']}")).json() == silence
    assert desk.get(at(alpha)).json() == {"silences": [silence], "next": None}


def test_a_silence_that_was_ended_is_listed_only_with_those_that_are_over(desk: Client, alpha: Tenant) -> None:
    ended, going_on = (post(desk, alpha).json()["id"] for _ in range(2))
    assert desk.delete(at(alpha, f"/{ended}")).status_code == 204
    assert [each["id"] for each in desk.get(at(alpha)).json()["silences"]] == [going_on]
    assert [each["id"] for each in desk.get(at(alpha, "?over=true")).json()["silences"]] == [going_on, ended]


def test_a_silence_that_is_ended_twice_is_noted_once_and_keeps_its_end(desk: Client, alpha: Tenant) -> None:
    number = post(desk, alpha).json()["id"]
    desk.delete(at(alpha, f"/{number}"))
    end_ms = Silence.objects.get().to_ms
    assert desk.delete(at(alpha, f"/{number}")).status_code == 204
    assert Silence.objects.get().to_ms == end_ms
    acts = AuditEntry.objects.filter(action__startswith="silence.").order_by("pk")
    assert [(act.action, act.actor) for act in acts] == [
        ("silence.create", alpha.owner),
        ("silence.end", alpha.owner),
    ]


def test_a_silence_that_is_ended_before_it_begins_never_does(desk: Client, alpha: Tenant) -> None:
    to_ms = SystemClock().now_ms() + 2 * HOUR_MS
    number = post(desk, alpha, from_ms=to_ms - HOUR_MS, to_ms=to_ms).json()["id"]
    desk.delete(at(alpha, f"/{number}"))
    silence = desk.get(at(alpha, f"/{number}")).json()
    assert silence["from_ms"] == silence["to_ms"] == to_ms - HOUR_MS


def test_a_list_goes_on_at_its_cursor_newest_first(desk: Client, alpha: Tenant) -> None:
    numbers = [post(desk, alpha).json()["id"] for _ in range(5)]
    first = desk.get(at(alpha, "?limit=2")).json()
    second = desk.get(at(alpha, f"?limit=3&cursor={first['next']}")).json()
    assert [each["id"] for page in (first, second) for each in page["silences"]] == numbers[::-1]
    assert second["next"] is None


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        pytest.param({"matchers": ""}, "matchers", id="no matchers"),
        pytest.param({"matchers": 'host="a'}, "string", id="matchers that cannot be read"),
        pytest.param({"matchers": 'host=~".*"'}, "matcher", id="matchers of everything"),
        pytest.param({"to_ms": 5}, "beginning", id="an end before its beginning"),
        pytest.param({"from_ms": 5, "to_ms": 9}, "future", id="an end in the past"),
        pytest.param({"from_ms": 0}, "year", id="longer than a year"),
        pytest.param({"to_ms": 1 << 63}, "to_ms", id="an end that is no time"),
        pytest.param({"comment": "x" * 201}, "comment", id="a comment that is too long"),
    ],
)
def test_a_silence_that_cannot_be_is_refused_with_what_is_wanted(
    desk: Client, alpha: Tenant, changes: dict[str, Any], wanted: str
) -> None:
    answer = post(desk, alpha, **changes)
    assert answer.status_code == 400
    assert wanted in answer.content.decode()
    assert not Silence.objects.exists()


def test_one_silence_over_the_bound_is_refused(desk: Client, alpha: Tenant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SILENCES_MAX", 1)
    assert post(desk, alpha).status_code == 201
    answer = post(desk, alpha)
    assert (answer.status_code, "End one first" in answer.json()["error"]) == (422, True)


def test_silences_of_another_organisation_are_not_there(desk: Client, alpha: Tenant, beta: Tenant) -> None:
    other = Client()
    other.force_login(beta.owner)
    number = post(other, beta).json()["id"]
    for answer in (desk.get(at(alpha, f"/{number}")), desk.delete(at(alpha, f"/{number}")), desk.get(at(beta))):
        assert answer.status_code == 404
    assert desk.get(at(alpha)).json()["silences"] == []
