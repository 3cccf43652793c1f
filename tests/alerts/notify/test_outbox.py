"""Deliveries: each message is sent under one key, whatever crashes between sending and recording."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from alerts.models import Outbox
from alerts.notify import outbox
from alerts.notify.base import DeliveryFailed, RecordingNotifier
from spm import limits
from spm.accounts.models import App
from spm.clock import FakeClock
from tests.alerts.conftest import START_MS

pytestmark = pytest.mark.django_db


@pytest.fixture
def message(app: App) -> Outbox:
    return Outbox.objects.create(app=app, key="1:a:5:firing", payload={}, created_ms=START_MS, next_attempt_ms=0)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START_MS)


def deliver(notifier: object, clock: FakeClock) -> outbox.DeliveryCounts:
    return outbox.deliver(notifiers={"mail": notifier}, clock=clock)  # type: ignore[dict-item]


def test_a_message_goes_out_once(message: Outbox, clock: FakeClock) -> None:
    notifier = RecordingNotifier()
    assert [deliver(notifier, clock).sent for _ in range(3)] == [1, 0, 0]
    message.refresh_from_db()
    assert (notifier.keys, message.state, message.sent_ms) == (["1:a:5:firing"], "sent", START_MS)


def test_a_failure_is_tried_again_after_growing_pauses(message: Outbox, clock: FakeClock) -> None:
    notifier, pauses = RecordingNotifier(failures=4), []
    while not deliver(notifier, clock).sent:
        message.refresh_from_db()
        pauses.append((message.next_attempt_ms - clock.now_ms()) / 1_000)
        clock.advance(message.next_attempt_ms - clock.now_ms())
    assert all(abs(wait - 10 * 2**number) <= 2.01 * 2**number for number, wait in enumerate(pauses))
    assert len(pauses) == 4


def test_before_its_pause_is_over_a_message_is_not_tried(message: Outbox, clock: FakeClock) -> None:
    notifier = RecordingNotifier(failures=1)
    deliver(notifier, clock)
    clock.advance(5_000)
    assert deliver(notifier, clock) == outbox.DeliveryCounts()


def test_a_message_is_dead_after_its_last_attempt(message: Outbox, clock: FakeClock) -> None:
    notifier = RecordingNotifier(failures=1_000)
    for _ in range(limits.OUTBOX_ATTEMPTS_MAX + 3):
        deliver(notifier, clock)
        clock.advance(2 * limits.OUTBOX_PAUSE_MAX_MS)
    message.refresh_from_db()
    assert (message.state, message.attempts) == ("dead", limits.OUTBOX_ATTEMPTS_MAX)
    assert message.error == "this notifier was asked to fail"


def test_a_permanently_refused_message_is_dead_at_once(message: Outbox, clock: FakeClock) -> None:
    deliver(RecordingNotifier(failures=1, permanent=True), clock)
    message.refresh_from_db()
    assert (message.state, message.attempts) == ("dead", 1)


def test_a_message_without_a_notifier_is_dead_and_says_so(message: Outbox, clock: FakeClock) -> None:
    outbox.deliver(notifiers={}, clock=clock)
    message.refresh_from_db()
    assert message.state == "dead"
    assert "mail" in message.error


def test_a_revived_message_goes_out_under_its_old_key(message: Outbox, clock: FakeClock) -> None:
    notifier = RecordingNotifier(failures=1, permanent=True)
    deliver(notifier, clock)
    assert outbox.revive(Outbox.objects.all()) == 1
    deliver(notifier, clock)
    assert notifier.keys == [message.key]


def test_of_two_rounds_at_once_one_gets_the_message(message: Outbox, clock: FakeClock) -> None:
    assert outbox.claim(message.pk, clock.now_ms()) is not None
    assert outbox.claim(message.pk, clock.now_ms()) is None
    assert deliver(RecordingNotifier(), clock) == outbox.DeliveryCounts()


def test_recording_under_a_lost_claim_changes_nothing(message: Outbox, clock: FakeClock) -> None:
    claim_id = outbox.claim(message.pk, clock.now_ms())
    assert claim_id is not None
    clock.advance(limits.OUTBOX_CLAIM_MS)
    outbox.claim(message.pk, clock.now_ms())
    outbox.mark_sent(message.pk, claim_id, clock.now_ms())
    message.refresh_from_db()
    assert message.state == "waiting"


def test_a_round_is_bounded(app: App, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "OUTBOX_ROUND_MAX", 3)
    Outbox.objects.bulk_create(
        Outbox(app=app, key=str(n), payload={}, created_ms=START_MS + n, next_attempt_ms=0) for n in range(5)
    )
    notifier = RecordingNotifier()
    deliver(notifier, clock)
    assert notifier.keys == ["0", "1", "2"]


class Crash(BaseException):
    """Simulates kill -9."""


class CrashingNotifier:
    """Crashes before or after it sends, as the list says; otherwise sends."""

    receiver_hint = "anything"

    def __init__(self, crashes: list[str]) -> None:
        self.crashes, self.keys = crashes, list[str]()

    def send(self, key: str, payload: Mapping[str, Any]) -> None:
        crash = self.crashes.pop(0) if self.crashes else ""
        if crash == "before":
            raise Crash
        if crash == "failure":
            raise DeliveryFailed("away")
        self.keys.append(key)
        if crash == "after":
            raise Crash


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(["before", "after", "failure"]), max_size=6))
def test_a_message_arrives_under_one_key_whatever_crashes(app: App, crashes: list[str]) -> None:
    Outbox.objects.all().delete()
    row = Outbox.objects.create(app=app, key="only", payload={}, created_ms=START_MS, next_attempt_ms=0)
    clock, notifier = FakeClock(START_MS), CrashingNotifier(crashes)
    for _ in range(len(crashes) + 1):
        try:
            deliver(notifier, clock)
        except Crash:
            row.refresh_from_db()
            assert row.state == "waiting"
        clock.advance(max(limits.OUTBOX_CLAIM_MS, limits.OUTBOX_PAUSE_MAX_MS * 2))
    row.refresh_from_db()
    assert row.state == "sent"
    assert set(notifier.keys) == {"only"}
