"""Episodes: one for each stretch of firing, written with its cause, with a revision that grows."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from alerts import episodes, rulebook
from alerts.models import Episode, Rule
from tests.alerts.conftest import PERIOD_MS, START_MS, AlertingWorld, draft

pytestmark = pytest.mark.django_db
MakeRule = Callable[..., Rule]


@pytest.fixture
def announced(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The ids that were announced, one list for each transaction."""
    calls: list[list[int]] = []
    monkeypatch.setattr(episodes, "episodes_changed", lambda rows, now_ms: calls.append([row.pk for row in rows]))
    return calls


def test_an_episode_spans_the_steps_at_which_its_series_fires(make_rule: MakeRule, world: AlertingWorld) -> None:
    make_rule(for_ms=PERIOD_MS, severity="critical")
    world.evaluate_values(95, 97, 99, 50, 50)
    episode = Episode.objects.get()
    assert (episode.start_ms, episode.end_ms) == (START_MS + PERIOD_MS, START_MS + 3 * PERIOD_MS)
    assert (episode.status, episode.end_reason, episode.severity) == ("ended", "recovered", "critical")
    assert (episode.start_value, episode.last_value, episode.revision) == (97.0, 50.0, 2)


def test_a_series_that_fires_again_has_a_second_episode(make_rule: MakeRule, world: AlertingWorld) -> None:
    make_rule()
    world.evaluate_values(95, 50, 95)
    assert list(Episode.objects.order_by("pk").values_list("status", flat=True)) == ["ended", "open"]


def test_a_pending_series_has_no_episode(make_rule: MakeRule, world: AlertingWorld) -> None:
    make_rule(for_ms=60_000)
    world.evaluate_values(95, 95, 50)
    assert not Episode.objects.exists()


@pytest.mark.parametrize(
    ("changes", "reason"), [({"expr": "other"}, "edited"), ({"enabled": False}, "switched off"), (None, "deleted")]
)
def test_a_person_who_ends_a_rule_ends_its_episodes_with_the_reason(
    make_rule: MakeRule, world: AlertingWorld, people: dict[str, User], changes: dict[str, Any] | None, reason: str
) -> None:
    rule = make_rule()
    world.evaluate_values(95)
    if changes is None:
        rulebook.delete(rule, by=people["edda"], now_ms=world.clock.now_ms())
    else:
        rulebook.change(rule, draft(**changes), by=people["edda"], now_ms=world.clock.now_ms())
    world.machine.values = {}
    world.evaluate()
    episode = Episode.objects.get()
    assert (episode.status, episode.end_reason) == ("ended", reason)


def test_every_change_is_announced_once_in_its_transaction(
    make_rule: MakeRule, world: AlertingWorld, announced: list[list[int]]
) -> None:
    make_rule()
    world.evaluate_values(50, 95, 97, 50)
    episode = Episode.objects.get()
    assert announced == [[episode.pk], [episode.pk]]


def test_a_series_has_at_most_one_open_episode(make_rule: MakeRule, world: AlertingWorld) -> None:
    make_rule()
    world.evaluate_values(95)
    copy = Episode.objects.get()
    copy.pk = None
    with pytest.raises(IntegrityError), transaction.atomic():
        copy.save()
