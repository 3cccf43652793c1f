"""Backtests: what a rule would have said, now and with what live judging knew; by REST and the command line."""

from collections.abc import Callable
from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client

from alerts.backtesting import backtests
from alerts.models import Episode, Rule
from spm import query
from spm.accounts.models import App
from spm.errors import LimitExceeded
from spm.limits import RULE_PERIOD_MS
from tests.alerts.conftest import AlertingWorld
from tests.alerts.knowledge_world import Installation

pytestmark = pytest.mark.django_db
MakeRule = Callable[..., Rule]


@pytest.fixture
def installation(app: App, make_rule: MakeRule, world: AlertingWorld, monkeypatch: pytest.MonkeyPatch) -> Installation:
    installation = Installation(app.pk, world.clock)
    monkeypatch.setattr(query, "configure", lambda url: None)
    monkeypatch.setattr(query, "storage_for", lambda number: installation.new_storage())
    return installation


@pytest.fixture
def amended(installation: Installation, make_rule: MakeRule) -> tuple[Rule, int, int]:
    """Return a rule, when its lane began, and a step whose violation came a minute late and fired then."""
    rule, start_ms = make_rule(), installation.clock.now_ms()
    installation.run_quietly(120)
    late_ms = installation.clock.now_ms() - 60_000
    installation.send("a", late_ms, 95.0)
    installation.run_quietly(120)
    return rule, start_ms, late_ms


@pytest.mark.seed("A35", compares="what the preview of a rule says of a history, with what live judging said")
@pytest.mark.parametrize("as_live_knew", [False, True], ids=["now", "then"])
def test_a_backtest_says_what_live_judging_said(
    installation: Installation, amended: tuple[Rule, int, int], as_live_knew: bool
) -> None:
    rule, start_ms, late_ms = amended
    report = backtests.try_rule(rule, start_ms, start_ms + 200_000, as_live_knew=as_live_knew)
    [episode] = report.episodes
    assert (episode.start_ms, episode.end_ms) == (late_ms, late_ms + RULE_PERIOD_MS)
    assert Episode.objects.get().start_ms == episode.start_ms
    assert (report.notifications, report.effects[0]) == (2, backtests.ForEffect(0, 1, 2))


def test_what_is_retracted_since_still_counts_as_live_knew(
    installation: Installation, amended: tuple[Rule, int, int]
) -> None:
    rule, start_ms, late_ms = amended
    installation.retract(late_ms - 1, late_ms)
    episode_counts = [
        len(backtests.try_rule(rule, start_ms, start_ms + 200_000, as_live_knew=then).episodes)
        for then in (False, True)
    ]
    assert episode_counts == [0, 1]


def test_for_saves_notifications(installation: Installation, amended: tuple[Rule, int, int]) -> None:
    rule, start_ms, _ = amended
    rule.for_ms = 20_000
    report = backtests.try_rule(rule, start_ms, start_ms + 200_000)
    assert (report.episodes, report.notifications) == ((), 0)
    assert report.effects[0] == backtests.ForEffect(0, 1, 2)


def test_a_backtest_is_bounded(installation: Installation, amended: tuple[Rule, int, int]) -> None:
    with pytest.raises(LimitExceeded):
        backtests.try_rule(amended[0], 0, 32 * 86_400_000)
    with pytest.raises(LimitExceeded):
        backtests.try_rule(amended[0], 0, 2 * 86_400_000, as_live_knew=True)


def test_the_interface_tries_a_rule_of_ones_own_app_only(
    installation: Installation, amended: tuple[Rule, int, int], people: dict[str, User]
) -> None:
    rule, start_ms, late_ms = amended
    body = {"expr": "cpu", "comparator": ">", "threshold": 90, "from_ms": start_ms, "to_ms": start_ms + 200_000}
    answers = {}
    for name in ("vera", "mallory"):
        client = Client()
        client.force_login(people[name])
        path = f"/api/v1/apps/{rule.app_id}/rules/backtest"
        answers[name] = client.post(path, body, content_type="application/json")
    assert answers["vera"].json()["episodes"][0]["start_ms"] == late_ms
    assert answers["mallory"].status_code == 404


def test_the_command_lists_episodes_and_says_what_it_cannot_do(
    installation: Installation, amended: tuple[Rule, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = amended[0]
    monkeypatch.setattr("alerts.management.commands.backtest.SystemClock", lambda: installation.clock)
    out = StringIO()
    call_command("backtest", str(rule.app_id), "--rule", str(rule.pk), "--hours", "0.1", stdout=out)
    assert "recovered" in out.getvalue()
    assert "1 episodes, 2 notifications" in out.getvalue()
    with pytest.raises(CommandError, match="nothing to try"):
        call_command("backtest", str(rule.app_id))
