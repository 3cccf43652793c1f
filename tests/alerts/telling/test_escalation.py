"""Escalation: who hears when of an alert that nobody acknowledges, by the real tables and a fake clock.

A story is what happens at which minute; beside it stands what each receiver hears, and when, worked out by hand. Each
beat is flushed twice, and one flush of a story may be killed.
"""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest
from django.contrib.auth.models import User
from django.db import transaction

from alerts.models import Episode, EpisodeStatus, Lane, Rule
from alerts.models.telling import Acknowledgement, EscalationStep, LastWord, Receiver
from alerts.notify.base import DeliveryFailed, Notifier
from alerts.telling import actions, flush, hook, limits, sender
from spm.accounts.models import App
from tests.alerts.conftest import START_MS, AlertingWorld
from tests.alerts.telling import configure
from tests.alerts.telling.world import Crash, dying

pytestmark = pytest.mark.django_db
MINUTE, BEAT_MS = 60_000, 30_000
FIRST, SECOND, THIRD = "first@example.org", "second@example.org", "third@example.org"
Heard = list[tuple[int, str, str]]
Story = list[tuple[float, str]]

BEGUN_AGAIN: Heard = [(0, FIRST, "firing"), (5, FIRST, "resolved"), (8, FIRST, "reopened")]
STORIES: dict[str, tuple[Story, Heard]] = {
    "nobody does anything": ([], [(0, FIRST, "firing"), (10, SECOND, "firing"), (20, THIRD, "firing")]),
    "it is acknowledged before the first step": ([(5, "acknowledge")], [(0, FIRST, "firing")]),
    "it is acknowledged after the first step": (
        [(12, "acknowledge")],
        [(0, FIRST, "firing"), (10, SECOND, "firing")],
    ),
    "it is snoozed over the first step, and the snooze ends": (
        [(5, "snooze until 15")],
        [(0, FIRST, "firing"), (15, SECOND, "firing"), (20, THIRD, "firing")],
    ),
    "it ends before the first step": ([(5, "end")], [(0, FIRST, "firing"), (5, FIRST, "resolved")]),
    "its end goes to those who heard of it": (
        [(13, "end")],
        [(0, FIRST, "firing"), (10, SECOND, "firing"), (13, FIRST, "resolved"), (13, SECOND, "resolved")],
    ),
    "it ends and begins again before the first step": (
        [(5, "end"), (8, "begin again")],
        [
            *BEGUN_AGAIN,
            (10, SECOND, "firing"),
            (20, THIRD, "firing"),
        ],
    ),
    "an acknowledgement ends when it begins again": (
        [(4, "acknowledge"), (5, "end"), (8, "begin again")],
        [
            *BEGUN_AGAIN,
            (10, SECOND, "firing"),
            (20, THIRD, "firing"),
        ],
    ),
    "a silence begins between and ends": (
        [(8, "silence until 14")],
        [(0, FIRST, "firing"), (14, SECOND, "firing"), (20, THIRD, "firing")],
    ),
    "the flush of the first step is killed": (
        [(10, "kill")],
        [(0, FIRST, "firing"), (10, SECOND, "firing"), (20, THIRD, "firing")],
    ),
    "the steps are taken away between": ([(5, "no steps")], [(0, FIRST, "firing")]),
    "the receivers of the first step fail": (
        [(5, "second fails")],
        [(0, FIRST, "firing"), (10, SECOND, "firing"), (10, THIRD, "firing")],
    ),
    "the receiver of the first step has not agreed": (
        [(5, "second is asked")],
        [(0, FIRST, "firing"), (10, THIRD, "firing")],
    ),
    "the contact point of a step joins the policy": (
        [(5, "second at once")],
        [(0, FIRST, "firing"), (5, SECOND, "firing"), (20, THIRD, "firing")],
    ),
}

BOTH_DATABASES = (  # each touches other rows; the rest are about who hears when
    "it is acknowledged after the first step",
    "its end goes to those who heard of it",
    "a silence begins between and ends",
    "the flush of the first step is killed",
    "the steps are taken away between",
    "the contact point of a step joins the policy",
)


class Ears:
    """Takes every notification and writes down who heard what in which minute."""

    def __init__(self, world: AlertingWorld) -> None:
        self.world, self.heard = world, Heard()
        self.deaf = ""

    def send(self, key: str, payload: Mapping[str, Any]) -> str:
        if payload["receivers"] == [self.deaf]:
            raise DeliveryFailed("550 no such user", permanent=True)
        minute = (self.world.clock.now_ms() - START_MS) // MINUTE
        self.heard += [(minute, payload["receivers"][0], line["kind"]) for line in payload["lines"]]
        return "heard"


class Stage:
    """An alert of a policy with two steps of escalation, and what may happen to it."""

    def __init__(self, app: App, rule: Rule, by: User, world: AlertingWorld) -> None:
        self.app, self.by, self.world = app, by, world
        self.policy = configure.policy(app, 'severity="warning"', FIRST, by=by, interval_ms=10_000)
        for after, receiver in ((10, SECOND), (20, THIRD)):
            point = actions.add_contact_point(app.organisation, receiver, (receiver,), by=by, now_ms=START_MS)
            EscalationStep.objects.create(policy=self.policy, after_ms=after * MINUTE, contact_point=point)
        times = {"start_ms": START_MS, "created_ms": START_MS, "changed_ms": START_MS}
        self.episode = Episode.objects.create(rule=rule, fingerprint="a", labels={}, severity="warning", **times)
        self.change(status=EpisodeStatus.OPEN)

    def change(self, **fields: Any) -> None:
        with transaction.atomic():
            Episode.objects.filter(pk=self.episode.pk).update(**fields)
            hook.mark([self.episode.pk], now_ms=self.world.clock.now_ms())
        self.episode.refresh_from_db()

    def act(self, what: str) -> None:
        """Let something happen."""
        now_ms, organisation = self.world.clock.now_ms(), self.app.organisation
        words = what.split()
        until_ms = START_MS + int(words[-1]) * MINUTE if words[-1].isdigit() else now_ms + 86_400_000
        if what == "end":
            self.change(status=EpisodeStatus.ENDED, end_ms=now_ms)
        elif what == "begin again":
            self.change(status=EpisodeStatus.OPEN, end_ms=None)
        elif words[0] in ("acknowledge", "snooze"):
            actions.acknowledge_episode(self.episode, by=self.by, for_ms=until_ms - now_ms, now_ms=now_ms)
        elif words[0] == "silence":
            text = 'severity="warning"'
            actions.add_silence(
                organisation, text, from_ms=now_ms, to_ms=until_ms, comment="", by=self.by, now_ms=now_ms
            )
        elif words[0] == "second":
            self.second(words[1:], now_ms)
        elif what == "no steps":
            EscalationStep.objects.all().delete()
            hook.mark_organisation(organisation.pk, now_ms=now_ms)

    def second(self, what: list[str], now_ms: int) -> None:
        """Let something happen to the receiver of the first step."""
        if what == ["at", "once"]:
            name = self.policy.contact_point.name
            actions.add_contact_point(self.app.organisation, name, (FIRST, SECOND), by=self.by, now_ms=now_ms)
            return
        values = {"dead_in_a_row": limits.DEAD_IN_A_ROW_MAX} if what == ["fails"] else {"confirmed_ms": None}
        Receiver.objects.filter(target=SECOND).update(**values)
        hook.mark_organisation(self.app.organisation_id, now_ms=now_ms)

    def beat(self, ears: Ears, *, is_killed: bool) -> None:
        """Flush twice and deliver; the first flush may be killed before it is committed."""
        dies = dying(flush, "freeze", True) if is_killed else contextlib.nullcontext()
        with contextlib.suppress(Crash), dies:
            flush.flush_due(self.world.clock.now_ms())
        flush.flush_due(self.world.clock.now_ms())
        sender.deliver(notifiers={"mail": cast(Notifier, ears)}, clock=self.world.clock, threads=1)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in BOTH_DATABASES else pytest.mark.one_database) for name in STORIES]
)
def test_each_receiver_hears_in_its_minute_and_only_if_nobody_has_taken_the_alert(
    name: str, app: App, make_rule: Callable[..., Rule], people: dict[str, User], world: AlertingWorld
) -> None:
    story, expected = STORIES[name]
    stage, ears = Stage(app, make_rule(receivers=()), people["olga"], world), Ears(world)
    for beat in range(0, 25 * MINUTE, BEAT_MS):
        Lane.objects.update(position_ms=world.clock.now_ms())
        acts = [what for minute, what in story if minute * MINUTE == beat]
        for what in acts:
            stage.act(what)
        stage.beat(ears, is_killed="kill" in acts)
        world.clock.advance(BEAT_MS)
    assert sorted(ears.heard) == sorted(expected)
    told_open = set(LastWord.objects.filter(level="open").values_list("receiver__target", flat=True))
    assert told_open == ({to for _, to, _ in expected} if stage.episode.status == EpisodeStatus.OPEN else set())


def test_an_acknowledgement_that_escalation_waits_for_is_looked_at_again_before_it_ends(
    app: App, make_rule: Callable[..., Rule], people: dict[str, User], world: AlertingWorld
) -> None:
    stage, ears = Stage(app, make_rule(receivers=()), people["olga"], world), Ears(world)
    stage.act("acknowledge")
    world.clock.advance(10 * MINUTE)
    stage.beat(ears, is_killed=False)
    Acknowledgement.objects.all().delete()
    world.clock.advance(3 * MINUTE)
    stage.beat(ears, is_killed=False)
    assert (13, SECOND, "firing") in ears.heard


def test_the_first_step_comes_at_once_when_the_receivers_of_the_policy_begin_to_fail(
    app: App, make_rule: Callable[..., Rule], people: dict[str, User], world: AlertingWorld
) -> None:
    stage, ears = Stage(app, make_rule(receivers=()), people["olga"], world), Ears(world)
    Receiver.objects.filter(target=FIRST).update(dead_in_a_row=limits.DEAD_IN_A_ROW_MAX - 1)
    ears.deaf = FIRST
    for _ in range(4):
        stage.beat(ears, is_killed=False)
        world.clock.advance(BEAT_MS)
    assert ears.heard == [(1, SECOND, "firing")]
    assert LastWord.objects.get(receiver__target=THIRD).not_before_ms == START_MS + 20 * MINUTE


def test_the_next_step_has_its_time_again_when_the_receivers_of_a_step_work(
    app: App, make_rule: Callable[..., Rule], people: dict[str, User], world: AlertingWorld
) -> None:
    stage, ears = Stage(app, make_rule(receivers=()), people["olga"], world), Ears(world)
    stage.act("second fails")
    assert LastWord.objects.get(receiver__target=THIRD).not_before_ms == START_MS + 10 * MINUTE
    actions.test_fire(Receiver.objects.get(target=SECOND), by=stage.by, now_ms=world.clock.now_ms())
    stage.beat(ears, is_killed=False)
    assert LastWord.objects.get(receiver__target=THIRD).not_before_ms == START_MS + 20 * MINUTE
