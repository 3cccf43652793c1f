"""What counts as noise: notifications, alerts that nobody acted on, alerts that began anew; and what that costs."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User

from alerts import rulebook
from alerts.models import Aspect, Delivery, Episode, EpisodeStatus, Lane, Rule
from alerts.models.noise import NoisyRule
from alerts.noise import limits
from alerts.noise.counts import count_noise
from alerts.telling import actions
from spm.accounts.models import App
from tests.alerts.conftest import START_MS, draft
from tests.alerts.noise.past import MINUTE_MS, alert, notified

pytestmark = pytest.mark.django_db
MakeRule = Callable[..., Rule]
END_MS = START_MS + limits.WEEK_MS


def noise_of(app: App) -> dict[str, tuple[int, int, int, int]]:
    """Notifications, alerts, unattended alerts and flaps of the week, by rule."""
    _, rows = count_noise(app.organisation_id, START_MS, END_MS, now_ms=END_MS)
    return {row.rule.name: (row.notifications, row.alerts, row.unattended, row.flaps) for row in rows}


def test_a_notification_counts_once_for_each_rule_that_it_names(app: App, make_rule: MakeRule) -> None:
    cpu, disk = make_rule(), make_rule(name="Disk is full")
    one, two, three = alert(cpu, START_MS), alert(cpu, START_MS, host="b"), alert(disk, START_MS)
    notified(one, two, three)
    notified(one)
    report, _ = count_noise(app.organisation_id, START_MS, END_MS, now_ms=END_MS)
    assert (report.notifications, report.alerts, report.rules, report.is_cut) == (2, 3, 2, False)
    assert noise_of(app) == {"CPU is busy": (2, 2, 2, 0), "Disk is full": (1, 1, 1, 0)}


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"status": EpisodeStatus.VOID}, id="it never was, by what is known now"),
        pytest.param({"status": EpisodeStatus.MERGED}, id="it is a part of another"),
        pytest.param({"aspect": Aspect.ERROR}, id="the rule could not be judged"),
        pytest.param({"start_ms": START_MS - 1}, id="before the week"),
        pytest.param({"start_ms": END_MS}, id="after the week"),
    ],
)
def test_what_is_no_alert_of_the_week_is_not_counted(app: App, make_rule: MakeRule, fields: dict[str, Any]) -> None:
    fields = dict(fields)
    alert(make_rule(), fields.pop("start_ms", START_MS), **fields)
    assert noise_of(app) == {}


@pytest.mark.parametrize("state", [Delivery.WAITING, Delivery.DEAD])
def test_only_what_was_delivered_is_a_notification(app: App, make_rule: MakeRule, state: str) -> None:
    notified(alert(make_rule(), START_MS), state=state)
    assert noise_of(app)["CPU is busy"][0] == 0


@pytest.mark.parametrize(
    ("pause_ms", "flaps"),
    [(limits.FLAP_MS - 1, 1), (limits.FLAP_MS, 0)],
    ids=["soon after the end", "half an hour later"],
)
def test_an_alert_flaps_that_begins_anew_soon(app: App, make_rule: MakeRule, pause_ms: int, flaps: int) -> None:
    rule = make_rule()
    first = alert(rule, START_MS)
    alert(rule, START_MS + MINUTE_MS + pause_ms)
    alert(rule, START_MS + 2 * MINUTE_MS, host="b")  # another series
    assert first.end_ms == START_MS + MINUTE_MS
    assert noise_of(app)["CPU is busy"][3] == flaps


def acknowledge(episode: Episode, by: User) -> None:
    Episode.objects.filter(pk=episode.pk).update(status=EpisodeStatus.OPEN, end_ms=None)
    episode.refresh_from_db()
    actions.acknowledge_episode(episode, by=by, for_ms=1, now_ms=START_MS)


def silence(episode: Episode, by: User, at_ms: int = START_MS + MINUTE_MS) -> None:
    text = 'alertname="CPU is busy", host="a"'
    app = episode.rule.app
    actions.add_silence(app.organisation, text, from_ms=at_ms, to_ms=at_ms + 1, comment="", by=by, now_ms=at_ms)


def change_rule(episode: Episode, by: User) -> None:
    Lane.objects.update(position_ms=START_MS + MINUTE_MS)
    rulebook.change(episode.rule, draft(threshold=95.0), by=by, now_ms=START_MS + MINUTE_MS)


@pytest.mark.parametrize(
    ("act", "unattended"),
    [
        pytest.param(lambda episode, by: None, 1, id="nobody does anything"),
        pytest.param(acknowledge, 0, id="acknowledged"),
        pytest.param(silence, 0, id="silenced while it goes on"),
        pytest.param(lambda episode, by: silence(episode, by, START_MS + 9 * MINUTE_MS), 1, id="silenced later"),
        pytest.param(change_rule, 0, id="its rule is changed"),
        pytest.param(lambda episode, by: Episode.objects.update(end_reason="person"), 0, id="ended by a person"),
    ],
)
def test_an_alert_is_unattended_unless_somebody_acts_on_it(
    app: App, people: dict[str, User], make_rule: MakeRule, act: Any, unattended: int
) -> None:
    episode = alert(make_rule(), START_MS, minutes=5)
    notified(episode)
    act(episode, people["edda"])
    assert noise_of(app)["CPU is busy"][2] == unattended


def test_what_nobody_was_told_of_is_not_unattended(app: App, make_rule: MakeRule) -> None:
    alert(make_rule(), START_MS)
    assert noise_of(app)["CPU is busy"] == (0, 1, 0, 0)


def test_rules_of_another_organisation_are_not_counted(app: App, foreign_app: App, make_rule: MakeRule) -> None:
    notified(alert(make_rule(), START_MS))
    assert noise_of(foreign_app) == {}


def test_a_report_costs_a_few_statements_and_shows_the_noisiest(
    app: App, make_rule: MakeRule, django_assert_max_num_queries: Any
) -> None:
    first = make_rule()
    rows = [Rule(app=app, name=f"noisy {n}", expr="cpu", created_ms=1, changed_ms=1) for n in range(200)]
    rules = Rule.objects.bulk_create(rows)
    for count, rule in enumerate((first, *rules)):
        for _ in range(3 if count == 150 else 1):
            notified(alert(rule, START_MS, host=str(Episode.objects.count())))
    with django_assert_max_num_queries(9):
        report, noisiest = count_noise(app.organisation_id, START_MS, END_MS, now_ms=END_MS)
    assert (report.rules, noisiest[0].rule.name, len(noisiest)) == (201, "noisy 149", limits.RULES_SHOWN)


def test_a_flood_of_notifications_is_cut_and_said_so(
    app: App, make_rule: MakeRule, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "NOTIFICATIONS_MAX", 2)
    episode = alert(make_rule(), START_MS)
    for _ in range(3):
        notified(episode)
    report, [row] = count_noise(app.organisation_id, START_MS, END_MS, now_ms=END_MS)
    assert (report.is_cut, report.notifications, row.notifications) == (True, 2, 2)


@pytest.mark.parametrize(
    ("tried", "notifications", "for_ms"),
    [
        pytest.param(40, [30, 20, 5], 2, id="the shortest that saves half"),
        pytest.param(40, [39, 38, 37], 3, id="else the one that saves most"),
        pytest.param(40, [40, 40, 41], None, id="none saves anything"),
        pytest.param(None, [], None, id="it was not tried"),
    ],
)
def test_the_for_that_is_proposed(tried: int | None, notifications: list[int], for_ms: int | None) -> None:
    effects = [{"for_ms": n, "episodes": 0, "notifications": each} for n, each in enumerate(notifications, 1)]
    row = NoisyRule(tried_notifications=tried, effects=effects)
    assert (row.saving and row.saving["for_ms"]) == for_ms
