"""The budget of an organisation: a flood delays itself alone, comes as digests, and loses nothing."""

from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest
from django.contrib.auth.models import User
from django.db import transaction

from alerts import rulebook
from alerts.models import Episode, Rule
from alerts.models.telling import LastWord, NotificationBudget
from alerts.notify.base import Notifier
from alerts.telling import budgets, flush, hook, sender
from spm.accounts.models import App
from tests.alerts.conftest import AlertingWorld, draft

pytestmark = pytest.mark.django_db
RECEIVERS = tuple(f"r{n}@example.org" for n in range(6))


class Ears:
    """Writes down what each receiver heard of which episodes."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, list[int]]] = []

    def send(self, key: str, payload: Mapping[str, Any]) -> str:
        self.heard.append((payload["receivers"][0], [line["episode"] for line in payload["lines"]]))
        return "heard"


def begin(rule: Rule, now_ms: int, host: str) -> None:
    times = {"start_ms": now_ms, "created_ms": now_ms, "changed_ms": now_ms}
    with transaction.atomic():
        row = Episode.objects.create(rule=rule, fingerprint=host, labels={"host": host}, severity="warning", **times)
        hook.mark([row.pk], now_ms=now_ms)


@pytest.mark.seed("A35", compares="notifications of a flood, with the budgets of its organisation")
def test_a_flood_of_one_organisation_delays_itself_alone_and_loses_nothing(
    make_rule: Callable[..., Rule],
    foreign_app: App,
    people: dict[str, User],
    world: AlertingWorld,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(budgets, "_MAX", 4)
    monkeypatch.setattr(budgets, "_PER_HOUR", 60)
    ears, now_ms = Ears(), world.clock.now_ms()
    for n in range(3):
        begin(make_rule(name=f"R{n}", receivers=RECEIVERS), now_ms, "a")
    quiet = rulebook.write(foreign_app, draft(receivers=("q@example.org",)), by=people["mallory"], now_ms=now_ms)
    begin(quiet, now_ms, "a")

    def pass_time(span_ms: int) -> list[str]:
        ears.heard.clear()
        for _ in range(0, span_ms, 10_000):
            world.clock.advance(10_000)
            flush.flush_due(world.clock.now_ms())
            sender.deliver(notifiers={"mail": cast(Notifier, ears)}, clock=world.clock, threads=1)
        return [to for to, _ in ears.heard]

    at_once = pass_time(10_000)
    assert "q@example.org" in at_once
    assert len(at_once) == 1 + 4, "of the flood as many as the budget has"
    later = pass_time(3 * 60_000)
    assert sorted({*at_once, *later}) == sorted({*RECEIVERS, "q@example.org"})
    assert all(len(episodes) == 3 for to, episodes in ears.heard), "the rest of the flood is joined"
    assert set(LastWord.objects.values_list("level", flat=True)) == {"open"}


def test_a_budget_is_full_before_the_first_notification_and_refills(
    make_rule: Callable[..., Rule], app: App, world: AlertingWorld
) -> None:
    now_ms = world.clock.now_ms()
    assert budgets.now_of(app.organisation_id, now_ms).tokens == budgets._MAX
    begin(make_rule(), now_ms, "a")
    world.clock.advance(10_000)
    flush.flush_due(world.clock.now_ms())
    assert NotificationBudget.objects.get().tokens == budgets._MAX - 1
    assert budgets.now_of(app.organisation_id, world.clock.now_ms() + 3_600_000).tokens == budgets._MAX
