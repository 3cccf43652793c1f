"""Random histories with crashes and refusals: every receiver hears the truth, in order, once.

Each rule of telling is switched off once, and the checker must then find a violation in some history.
"""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from alerts.models import Rule
from alerts.models.telling import LastWord, Notification
from alerts.telling import body, flush, sender
from alerts.telling.decide import decision as decision_module
from alerts.telling.decide import episodes as decided
from alerts.telling.decide.difference import after_delivery
from alerts.telling.decide.episodes import Decision, EpisodeView, LineKind
from alerts.telling.decide.matchers import select
from tests.alerts.telling.world import RECEIVERS, Violation, World

pytestmark = pytest.mark.django_db
STEPS = 30


class Undo(Exception):
    """Takes a history out of the database again."""


@pytest.fixture
def live(make_rule: Callable[..., Rule]) -> Callable[[int], None]:
    """Lives through the history of a seed and leaves nothing behind."""
    rules = [make_rule(name=name, receivers=RECEIVERS) for name in ("CPU", "Disk")]

    def live_one(seed: int) -> None:
        with contextlib.suppress(Undo), transaction.atomic():
            World(list(Rule.objects.filter(pk__in=[rule.pk for rule in rules])), seed).run(STEPS)
            raise Undo

    return live_one


@pytest.mark.slow
def test_every_receiver_hears_the_truth_whatever_crashes_and_refuses(live: Callable[[int], None]) -> None:
    for seed in range(10):
        live(seed)


def several_open(patch: pytest.MonkeyPatch) -> None:
    """One receiver and group have several open notifications at a time."""
    patch.setattr(flush, "is_open", lambda group: False)


def edges(patch: pytest.MonkeyPatch) -> None:
    """What a receiver believes is not written, so each look tells the change again."""
    patch.setattr(sender, "_believe", lambda *arguments, **named: None)


def ends_for_all(patch: pytest.MonkeyPatch) -> None:
    """Ends go to every receiver of the route, whether or not it heard of the beginning."""
    original = flush._decide

    def decide(around: Any, word: LastWord, episode: EpisodeView) -> Decision:
        decision = original(around, word, episode)
        return Decision(LineKind.RESOLVED, "") if decision.kind in (LineKind.BRIEF, LineKind.LATE) else decision

    patch.setattr(flush, "_decide", decide)


def ends_by_route(patch: pytest.MonkeyPatch) -> None:
    """Ends go by the route of today, though others heard of the beginning."""
    original = flush._decide

    def decide(around: Any, word: LastWord, episode: EpisodeView) -> Decision:
        is_routed = flush.is_routed(around.receiver, word, around.configuration)
        return original(around, word, episode) if is_routed else Decision(None, "")

    patch.setattr(flush, "_decide", decide)


def silenced_ends(patch: pytest.MonkeyPatch) -> None:
    """An end under a silence is dropped."""
    original = flush._decide

    def decide(around: Any, word: LastWord, episode: EpisodeView) -> Decision:
        silences = around.configuration.silences
        covered = [each for each in silences if select(each.matchers, [episode.labels])[0]]
        at_ms = episode.end_ms
        is_covered = at_ms is not None and any(each.from_ms <= at_ms < each.to_ms for each in covered)
        return Decision(None, "") if is_covered else original(around, word, episode)

    patch.setattr(flush, "_decide", decide)


def new_bodies(patch: pytest.MonkeyPatch) -> None:
    """A retry is written anew, under the same key."""
    original = sender._hand_over

    def hand_over(notification: Notification, *others: Any) -> Any:
        notification.body = {**notification.body, "attempt": notification.attempts}
        return original(notification, *others)

    patch.setattr(sender, "_hand_over", hand_over)


def one_delivery_for_all(patch: pytest.MonkeyPatch) -> None:
    """One hand-over goes to all receivers."""
    original = body.write
    patch.setattr(body, "write", lambda *rows, **named: {**original(*rows, **named), "receivers": list(RECEIVERS)})


def refused_counts(patch: pytest.MonkeyPatch) -> None:
    """What was surely refused counts as told."""
    patch.setattr(sender, "after_delivery", lambda frozen, last, **how: decided.LastWord(frozen))


def doubt_is_nothing(patch: pytest.MonkeyPatch) -> None:
    """What perhaps arrived counts as not told."""
    original = after_delivery

    def after(frozen: decided.Level, last: decided.LastWord, *, arrived: bool, perhaps: bool) -> decided.LastWord:
        return original(frozen, last, arrived=arrived, perhaps=False)

    patch.setattr(sender, "after_delivery", after)


def brief_is_dropped(patch: pytest.MonkeyPatch) -> None:
    """An alert that began and ended between two looks is forgotten."""
    original = flush._decide

    def decide(around: Any, word: LastWord, episode: EpisodeView) -> Decision:
        decision = original(around, word, episode)
        return Decision(None, "") if decision.kind in (LineKind.BRIEF, LineKind.LATE) else decision

    patch.setattr(flush, "_decide", decide)


def silence_ignored(patch: pytest.MonkeyPatch) -> None:
    """First lines pass silences."""
    patch.setattr(decision_module, "cover_at", lambda covers, at_ms: None)


SWITCHES: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "one_open": several_open,
    "told_level": edges,
    "only_told": ends_for_all,
    "told_route": ends_by_route,
    "silence_end": silenced_ends,
    "freeze": new_bodies,
    "per_receiver": one_delivery_for_all,
    "undelivered": refused_counts,
    "doubt": doubt_is_nothing,
    "brief": brief_is_dropped,
    "silence": silence_ignored,
}
# Histories that show a rule's absence, where only few do: they are tried first.
FIRST = {"doubt": 9, "brief": 41}


@pytest.mark.slow
@pytest.mark.parametrize("name", list(SWITCHES))
def test_without_a_rule_of_telling_the_checker_finds_a_violation(
    live: Callable[[int], None], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    SWITCHES[name](monkeypatch)
    with pytest.raises(Violation):  # noqa: PT012
        for seed in (FIRST.get(name, 0), *range(60)):
            live(seed)
