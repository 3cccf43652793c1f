"""Annotations that rest on data: read once for each notification, at the right step, and never in the way of it."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from alerts import newest_texts
from alerts.models import Episode, Rule
from alerts.models.telling import Notification
from alerts.notify.base import DeliveryFailed
from alerts.telling import flush, limits, sender
from spm.errors import StoreUnavailable
from tests.alerts.conftest import PERIOD_MS, START_MS, AlertingWorld

QUERY = "{{ range query `up` }}{{ .Labels.host }}:{{ .Value }}{{ end }}"
pytestmark = pytest.mark.django_db


class Taker:
    """A notifier that keeps what it was given, and fails as often as a test says."""

    def __init__(self, failures: int = 0) -> None:
        self.texts: list[Mapping[str, str]] = []
        self.failures = failures

    def send(self, key: str, payload: Mapping[str, Any]) -> str:
        self.texts.append(payload["lines"][0]["annotations"])
        if len(self.texts) <= self.failures:
            raise DeliveryFailed("451 later")
        return "taken"


@pytest.fixture
def due(
    make_rule: Callable[..., Rule], world: AlertingWorld, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., AlertingWorld]:
    """A notification waits, of a rule with some annotations."""
    monkeypatch.setattr(newest_texts, "session_as_known", lambda app, known: world.machine.open_session(app))

    def make(**annotations: str) -> AlertingWorld:
        make_rule(annotations=annotations)
        world.evaluate_values(95)
        world.clock.advance(limits.GROUP_WAIT_MS)
        flush.flush_due(world.clock.now_ms())
        world.machine.queries.clear()
        return world

    return make


def deliver(world: AlertingWorld, taker: Any) -> None:
    sender.deliver(notifiers={"mail": taker}, clock=world.clock)


def test_a_retry_has_the_texts_of_the_first_attempt(due: Callable[..., AlertingWorld]) -> None:
    world, taker = due(jobs=QUERY), Taker(failures=1)
    deliver(world, taker)
    world.machine.values = {"z": 1.0}
    world.clock.advance(limits.PAUSE_MAX_MS)
    deliver(world, taker)
    assert taker.texts == [{"jobs": "a:95"}] * 2
    assert Notification.objects.get().full_body["lines"][0]["annotations"] == {"jobs": "a:95"}


def test_a_text_of_the_alert_alone_reads_nothing(due: Callable[..., AlertingWorld]) -> None:
    world, taker = due(text="{{ $labels.host }} {{ $value }}", plain="query value"), Taker()
    deliver(world, taker)
    assert taker.texts == [{"text": "a 95", "plain": "query value"}]
    assert world.machine.queries == []
    assert Notification.objects.get().texts is None


def test_queries_are_made_at_the_step_that_was_judged_last(due: Callable[..., AlertingWorld]) -> None:
    world = due(jobs=QUERY)
    deliver(world, Taker())
    assert {(expr, at_ms) for _, expr, at_ms in world.machine.queries} == {("cpu", START_MS), ("up", START_MS)}


def test_a_notification_goes_out_though_its_texts_cannot_be_read(
    due: Callable[..., AlertingWorld], monkeypatch: pytest.MonkeyPatch
) -> None:
    world, taker = due(jobs=QUERY), Taker()

    def away(app: int, known: object) -> Any:
        raise StoreUnavailable("away")

    monkeypatch.setattr(newest_texts, "session_as_known", away)
    deliver(world, taker)
    assert taker.texts == [{"jobs": "<error expanding template: there is nothing to query here>"}]
    assert Notification.objects.get().state == "sent"


def test_a_query_that_fails_says_so_in_its_text_alone(
    due: Callable[..., AlertingWorld],
) -> None:
    world, taker = due(bad="{{ query `up` | first | label `none` | humanize }}", good=QUERY), Taker()
    deliver(world, taker)
    assert taker.texts[0]["good"] == "a:95"
    assert taker.texts[0]["bad"].startswith("<error expanding template: ")


READINGS: dict[str, tuple[dict[str, Any], str, int | None]] = {
    "an alert that began at the last step": ({}, "{{ $value }}", None),
    "one that goes on": ({"judged_ms": START_MS + PERIOD_MS}, "{{ $value }}", START_MS + PERIOD_MS),
    "one that goes on, without its value": ({"judged_ms": START_MS + PERIOD_MS}, "{{ $labels.host }} value", None),
    "one that is over": ({"end_ms": START_MS + 3 * PERIOD_MS}, "{{ .Value }}", START_MS + 2 * PERIOD_MS),
    "a value that is another's": ({"judged_ms": START_MS + PERIOD_MS}, "{{ $value := 1 }}{{ $labels.value }}", None),
    "a query": ({}, QUERY, START_MS),
    "a judge that is behind": ({"judged_ms": 0}, QUERY, START_MS),
    "missing data": ({"aspect": "missing"}, QUERY, None),
    "a text that is no template": ({}, "{{ query", None),
}


@pytest.mark.parametrize(("changes", "text", "at_ms"), READINGS.values(), ids=READINGS)
def test_what_is_read_is_the_last_step_at_which_the_alert_fired(
    make_rule: Callable[..., Rule], changes: dict[str, Any], text: str, at_ms: int | None
) -> None:
    rule = make_rule(annotations={"text": text})
    judged_ms = changes.pop("judged_ms", START_MS)
    episode = Episode(rule=rule, **{"aspect": "value", "labels": {}, "start_ms": START_MS, **changes})
    reading = newest_texts.reading_of(episode, judged_ms)
    assert (reading and reading["at_ms"]) == at_ms
