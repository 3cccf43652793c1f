"""Silences in Alertmanager's form: create, replace, expire, and how far a program's reach."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from django.test import Client

from alerts.models.telling import ContactPoint, Policy, Silence
from alerts.telling import actions
from alerts.telling.decide.matchers import read_matchers
from frontend.api.alertmanager.base import silence_id
from spm.accounts import tokens
from spm.accounts.models import AuditEntry
from spm.clock import SystemClock
from tests.support.people import Tenant

pytestmark = pytest.mark.django_db
HOUR_MS = 3_600_000


@pytest.fixture
def program(alpha: Tenant) -> Client:
    """A program whose token may write."""
    secret = tokens.issue(alpha.app, name="robot", scopes=["write"])[1]
    return Client(headers={"Authorization": f"Bearer {secret}"})


def matcher(name: str, value: str, *, regex: bool = False, equal: bool = True) -> dict[str, Any]:
    return {"name": name, "value": value, "isRegex": regex, "isEqual": equal}


def post(client: Client, *matchers: dict[str, Any], **changes: Any) -> Any:
    """The answer to a new silence, an hour long."""
    now = datetime.now(UTC)
    times = {"startsAt": now.isoformat(), "endsAt": (now + timedelta(hours=1)).isoformat()}
    body = {"matchers": list(matchers), "createdBy": "ops", "comment": "new disk", **times, **changes}
    return client.post("/api/v2/silences", body, content_type="application/json")


def listed(client: Client, **query: Any) -> Any:
    return client.get("/api/v2/silences", query).json()


def test_a_silence_is_read_as_it_was_written_and_is_of_its_app_alone(program: Client, alpha: Tenant) -> None:
    wanted = [
        matcher("host", 'a "b" \\ \n'),
        matcher("env", "prod|stage", regex=True),
        matcher("dc", "x", equal=False),
        matcher("zone", "y.*", regex=True, equal=False),
    ]
    identifier = post(program, *wanted).json()["silenceID"]
    read = program.get(f"/api/v2/silence/{identifier}").json()
    assert read["matchers"] == [*wanted, matcher("app", alpha.app.name)]
    assert (read["status"]["state"], read["comment"]) == ("active", "new disk — ops")
    assert read["createdBy"]
    assert listed(program) == [read]
    entry = AuditEntry.objects.get(action="silence.create")
    assert (entry.actor, entry.actor_name) == (None, "token robot")


def test_an_expired_silence_stays_in_the_list(program: Client) -> None:
    identifier = post(program, matcher("host", "a")).json()["silenceID"]
    assert program.delete(f"/api/v2/silence/{identifier}").status_code == 200
    assert [each["status"]["state"] for each in listed(program)] == ["expired"]
    entry = AuditEntry.objects.get(action="silence.end")
    assert (entry.actor, entry.actor_name) == (None, "token robot")


def test_a_silence_that_begins_later_is_pending(program: Client) -> None:
    now = datetime.now(UTC)
    times = {"startsAt": (now + timedelta(hours=1)).isoformat(), "endsAt": (now + timedelta(hours=2)).isoformat()}
    assert post(program, matcher("host", "a"), **times).status_code == 200
    assert listed(program)[0]["status"]["state"] == "pending"


def test_an_update_ends_the_old_one_and_creates_another(program: Client) -> None:
    old = post(program, matcher("host", "a")).json()["silenceID"]
    new = post(program, matcher("host", "b"), id=old).json()["silenceID"]
    states = {each["id"]: each["status"]["state"] for each in listed(program)}
    assert states == {old: "expired", new: "active"}


def test_an_update_of_what_was_read_keeps_its_comment(program: Client) -> None:
    post(program, matcher("host", "a"))
    [read] = listed(program)
    assert program.post("/api/v2/silences", read, content_type="application/json").status_code == 200
    assert listed(program)[0]["comment"] == read["comment"] == "new disk — ops"


def test_an_update_that_is_refused_ends_nothing(program: Client) -> None:
    old = post(program, matcher("host", "a")).json()["silenceID"]
    assert post(program, matcher("host", "(", regex=True), id=old).status_code == 400
    assert [each["status"]["state"] for each in listed(program)] == ["active"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"endsAt": "2001-01-01T00:00:00Z"}, "ends after its beginning"),
        ({"endsAt": "soon"}, "endsAt"),
        ({"matchers": []}, "matchers"),
        ({"matchers": [{"name": "a-b", "value": "x", "isRegex": False}]}, "name"),
        ({"matchers": [{"name": "host", "value": "(", "isRegex": True}]}, "missing"),
    ],
)
def test_what_is_wrong_is_said_in_one_text(program: Client, changes: dict[str, Any], words: str) -> None:
    answer = post(program, matcher("host", "a"), **changes)
    assert answer.status_code == 400
    assert words in answer.json()


def test_a_program_sees_silences_that_concern_its_app_and_ends_its_own_alone(program: Client, alpha: Tenant) -> None:
    now_ms = SystemClock().now_ms()
    times: dict[str, Any] = {"from_ms": now_ms, "to_ms": now_ms + HOUR_MS, "now_ms": now_ms}
    everyones, others = (
        actions.add_silence(alpha.organisation, text, comment="", by=alpha.owner, **times)
        for text in ('host="a"', 'app="another"')
    )
    assert [each["id"] for each in listed(program)] == [silence_id(everyones.pk)]
    answer = program.delete(f"/api/v2/silence/{silence_id(everyones.pk)}")
    assert (answer.status_code, "other apps" in answer.json()) == (403, True)
    assert program.delete(f"/api/v2/silence/{silence_id(others.pk)}").status_code == 404
    assert Silence.objects.filter(to_ms=now_ms + HOUR_MS).count() == 2


@pytest.mark.parametrize("identifier", ["none", "5", "ffffffff-0000-0000-0000-000000000000", silence_id(10**30)])
def test_an_unknown_silence_is_a_404(program: Client, identifier: str) -> None:
    assert program.get(f"/api/v2/silence/{identifier}").status_code == 404
    assert program.delete(f"/api/v2/silence/{identifier}").status_code == 404
    assert post(program, matcher("host", "a"), id=identifier).status_code == 404
    assert Silence.objects.count() == 0


def test_silences_are_filtered_by_what_they_match(program: Client) -> None:
    post(program, matcher("host", "a"))
    post(program, matcher("env", "prod.*", regex=True))
    assert [each["matchers"][0]["name"] for each in listed(program, filter="host=a")] == ["host"]
    assert len(listed(program, filter='host=~"a|b"')) == 1
    assert len(listed(program, filter="other=a")) == 0


def test_the_configuration_has_the_policies_that_can_concern_the_app_as_routes(program: Client, alpha: Tenant) -> None:
    points = [ContactPoint.objects.create(organisation=alpha.organisation, name=name) for name in ("Day", "Night")]
    waits = {"wait_ms": 5_000, "interval_ms": 120_000, "repeat_ms": 14_400_000, "organisation": alpha.organisation}
    upper = Policy.objects.create(matchers='severity="critical"', contact_point=points[0], group_by=["host"], **waits)
    Policy.objects.create(matchers='host=~"db.*"', contact_point=points[1], parent=upper, goes_on=True, **waits)
    Policy.objects.create(matchers='app="another"', contact_point=points[1], **waits)
    status = program.get("/api/v2/status").json()
    config = yaml.safe_load(status["config"]["original"])
    [route] = config["route"]["routes"]
    [below] = route["routes"]
    assert status["cluster"]["status"] == "disabled"
    assert (route["receiver"], route["group_by"], route["group_wait"]) == ("Day", ["host"], "5s")
    assert (route["group_interval"], route["repeat_interval"], route["continue"]) == ("2m", "4h", False)
    assert (below["receiver"], below["continue"]) == ("Night", True)
    assert read_matchers(below["matchers"][0]) == read_matchers('host=~"db.*"')
    named = [each["name"] for each in config["receivers"]]
    assert {"Day", "Night", config["route"]["receiver"]} == set(named)
    assert [each["name"] for each in program.get("/api/v2/receivers").json()] == named
