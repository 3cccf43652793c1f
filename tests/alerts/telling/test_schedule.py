"""The schedule of a rule: it is judged all the time and told in its windows; a backtest counts what is sent.

The schedule holds from 22:30 to 23:30 UTC. Times are seconds from its first beginning on.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction

from alerts import rulebook
from alerts.judging.backtest import notification_times
from alerts.judging.reconciliation import Stretch
from alerts.models import Aspect, Episode, EpisodeStatus, Lane, Rule
from alerts.models.telling import LastWord, Notification, NotificationGroup
from alerts.telling import actions, flush, hook, limits
from alerts.telling.configuration import schedule_of
from spm.accounts.models import App
from spm.errors import BadQuery
from tests.alerts.conftest import START_MS, AlertingWorld, draft

pytestmark = pytest.mark.django_db
MakeRule = Callable[..., Rule]
OPENS_MS = START_MS + 1_000_000  # 22:30
HOUR_S, DAY_S = 3_600, 86_400
EVENINGS = {"schedule_cron": "30 22 * * *", "schedule_zone": "UTC", "schedule_ms": 3_600_000}


def change(rule: Rule, start_s: int, end_s: int | None, now_s: int, **fields: Any) -> None:
    """Begin the alert, or end it."""
    at_ms, end_ms = OPENS_MS + start_s * 1_000, None if end_s is None else OPENS_MS + end_s * 1_000
    status = EpisodeStatus.OPEN if end_ms is None else EpisodeStatus.ENDED
    now_ms = OPENS_MS + now_s * 1_000
    values = {"labels": {}, "severity": "warning", "created_ms": now_ms, "start_ms": at_ms, **fields}
    with transaction.atomic():
        episode, _ = Episode.objects.update_or_create(
            rule=rule,
            fingerprint=str(start_s),
            defaults={"end_ms": end_ms, "status": status, "changed_ms": now_ms},
            create_defaults={"end_ms": end_ms, "status": status, "changed_ms": now_ms, **values},
        )
        hook.mark([episode.pk], now_ms=now_ms)


def tell(now_s: int) -> None:
    """Write what is due, and take it as delivered."""
    now_ms = OPENS_MS + now_s * 1_000
    Lane.objects.update(position_ms=now_ms // 10_000 * 10_000)
    flush.flush_due(now_ms)
    for row in Notification.objects.filter(state="waiting"):
        for number, level in row.levels.items():
            LastWord.objects.filter(episode=int(number)).update(level=level)
        Notification.objects.filter(pk=row.pk).update(state="sent")
        NotificationGroup.objects.filter(open=row).update(open=None, next_look_ms=now_ms)


def run_live(rule: Rule, alerts: Sequence[tuple[int, int | None]], until_s: int) -> list[int]:
    """Let alerts begin and end, flush whenever a group is to be looked at, and return when notifications were made."""
    begins: dict[int, tuple[int, int | None]] = {start: (start, None) for start, _ in alerts}
    ends: dict[int, tuple[int, int | None]] = {end: (start, end) for start, end in alerts if end is not None}
    times = sorted({*begins, *ends})
    now_s = times[0]
    while now_s <= until_s:
        for due in (begins, ends):
            if now_s in due:
                start_s, end_s = due.pop(now_s)
                change(rule, start_s, end_s, now_s)
        tell(now_s)
        looks = NotificationGroup.objects.values_list("next_look_ms", flat=True)
        following = [(look - OPENS_MS + 999) // 1_000 for look in looks if look is not None] + [
            each for each in times if each > now_s
        ]
        now_s = max(min(following, default=until_s + 1), now_s + 1)
    created = Notification.objects.order_by("pk").values_list("created_ms", flat=True)
    return [(each - OPENS_MS) // 1_000 for each in created]


CASES = [
    pytest.param([(60, 300)], [65, 300], id="inside it"),
    pytest.param([(-600, 300)], [0, 300], id="it begins before: told when the schedule begins"),
    pytest.param([(-600, -300)], [], id="wholly outside: never told", marks=pytest.mark.one_database),
    pytest.param([(3_000, HOUR_S + 600)], [3_005, HOUR_S + 600], id="the end of what was told is told at any time"),
    pytest.param(
        [(-600, 4_200), (-300, -200)], [0, 4_200], id="of two, the one that goes on", marks=pytest.mark.one_database
    ),
    pytest.param(
        [(3_500, 3_510), (3_550, HOUR_S + 600)],
        [3_505, 3_625, DAY_S],
        id="one that could not be told before the schedule ended is told when it begins again",
    ),
]


@pytest.mark.seed("A35", compares="when receivers hear of alerts, with the schedule of their rule")
@pytest.mark.parametrize(("alerts", "times"), CASES)
def test_an_alert_is_told_in_the_schedule_of_its_rule(
    make_rule: MakeRule, alerts: list[tuple[int, int | None]], times: list[int]
) -> None:
    rule = make_rule(**EVENINGS)
    assert run_live(rule, alerts, until_s=DAY_S + 60) == times


@pytest.mark.parametrize(("alerts", "times"), CASES)
def test_a_backtest_counts_what_live_telling_sends(alerts: list[tuple[int, int | None]], times: list[int]) -> None:
    schedule = schedule_of(Rule(**EVENINGS))
    assert schedule is not None
    gaps = schedule.gaps(from_ms=START_MS, to_ms=OPENS_MS + 2 * DAY_S * 1_000)
    stretches = [
        Stretch(OPENS_MS + start * 1_000, None if end is None else OPENS_MS + end * 1_000) for start, end in alerts
    ]
    counted = notification_times(
        stretches, wait_ms=limits.GROUP_WAIT_MS, interval_ms=limits.GROUP_INTERVAL_MS, covers=gaps
    )
    assert [(each - OPENS_MS) // 1_000 for each in counted] == times


def test_what_goes_on_is_said_again_when_the_schedule_begins_again(make_rule: MakeRule) -> None:
    """Its repetition is due after four hours, in the night."""
    assert run_live(make_rule(**EVENINGS), [(60, None)], until_s=DAY_S + 60) == [65, DAY_S]


def test_nobody_looks_again_at_an_alert_that_is_never_told(make_rule: MakeRule) -> None:
    assert run_live(make_rule(**EVENINGS), [(-600, -300)], until_s=60) == []
    assert NotificationGroup.objects.get().next_look_ms is None


def test_a_silence_and_a_window_hold_repetitions_back(app: App, people: dict[str, User], make_rule: MakeRule) -> None:
    repeat_s = limits.GROUP_REPEAT_MS // 1_000
    until_s = 60 + 2 * repeat_s
    change(make_rule(), 0, None, 0)
    tell(5)
    actions.add_silence(
        app.organisation, 'alertname="CPU is busy"', from_ms=OPENS_MS, to_ms=OPENS_MS + until_s * 1_000,
        comment="", by=people["edda"], now_ms=OPENS_MS,
    )  # fmt: skip
    for now_s in (5 + repeat_s, until_s - 1, until_s):
        NotificationGroup.objects.update(next_look_ms=0)
        tell(now_s)
    assert [row.created_ms for row in Notification.objects.order_by("pk")] == [
        OPENS_MS + 5_000,
        OPENS_MS + until_s * 1_000,
    ]


def test_an_edit_of_the_schedule_tells_at_once_what_it_kept_back(people: dict[str, User], make_rule: MakeRule) -> None:
    rule = make_rule(**EVENINGS)
    change(rule, -600, None, -600)
    tell(-500)
    assert not Notification.objects.exists()
    assert LastWord.objects.get().reason == "outside the schedule of its rule"
    rulebook.change(rule, draft(), by=people["edda"], now_ms=OPENS_MS - 400_000)
    tell(-400)
    assert Notification.objects.count() == 1


def test_that_a_rule_cannot_be_judged_is_told_at_any_time(make_rule: MakeRule, people: dict[str, User]) -> None:
    User.objects.filter(username="edda").update(email="edda@example.org")
    change(make_rule(**EVENINGS), -600, None, -600, aspect=Aspect.ERROR)
    tell(-500)
    assert Notification.objects.count() == 1


def test_a_rule_with_a_schedule_is_judged_outside_of_it(make_rule: MakeRule, world: AlertingWorld) -> None:
    make_rule(**EVENINGS)
    world.evaluate_values(50.0, 95.0, 50.0)
    episode = Episode.objects.get()
    assert (episode.status, world.tell()) == (EpisodeStatus.ENDED, 0)


@pytest.mark.parametrize(
    "fields",
    [{"schedule_cron": "8 o'clock"}, {"schedule_zone": "Mars/Base"}, {"schedule_ms": 0}],
    ids=["no cron expression", "no zone", "no length"],
)
def test_a_schedule_that_cannot_be_is_refused(make_rule: MakeRule, fields: dict[str, Any]) -> None:
    with pytest.raises(BadQuery):
        make_rule(**{**EVENINGS, **fields})
    assert not Rule.objects.exists()
