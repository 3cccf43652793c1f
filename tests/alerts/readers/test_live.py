"""Rules that read alerts, live: they fire at the same step, and replays and backtests say the same."""

import pytest

from alerts.backtesting import backtests
from alerts.models import Episode, Lane, Rule, RuleVersionRow
from alerts.recording.limits import ALERTS_SOURCE
from alerts.rulefiles.apply import Author, import_files
from spm import query
from spm.accounts.models import App
from spm.errors import LimitExceeded
from spm.limits import RULE_PERIOD_MS
from tests.alerts.conftest import AlertingWorld
from tests.alerts.knowledge_world import Installation, replayed_lines, written_line

pytestmark = pytest.mark.django_db
READS = """
groups:
- name: g
  rules:
  - {alert: Early, expr: 'ALERTS{alertname="Busy"}'}
  - {alert: Busy, expr: cpu > 90, labels: {team: infra}}
  - {alert: Reader, expr: 'ALERTS{alertname="Busy", alertstate="firing", team="infra"} == 1'}
"""


@pytest.fixture
def installation(app: App, world: AlertingWorld, monkeypatch: pytest.MonkeyPatch) -> Installation:
    installation = Installation(app.pk, world.clock)
    monkeypatch.setattr(query, "configure", lambda url: None)
    monkeypatch.setattr(query, "storage_for", lambda number: installation.new_storage())
    import_files(app, {"r.yml": READS}, by=Author(), now_ms=world.clock.now_ms())
    return installation


@pytest.fixture
def late(installation: Installation) -> tuple[int, int]:
    """Return when judging began, and a step whose violation came a minute late."""
    start_ms = installation.clock.now_ms()
    installation.run_quietly(120)
    late_ms = installation.clock.now_ms() - 60_000
    installation.send("a", late_ms, 95.0)
    installation.run_quietly(120)
    return start_ms, late_ms


def episodes() -> dict[str, tuple[int, int | None]]:
    return {each.rule.name: (each.start_ms, each.end_ms) for each in Episode.objects.all()}


def test_a_reader_fires_at_the_step_of_what_it_reads_also_if_that_came_late(late: tuple[int, int]) -> None:
    _, at_ms = late
    once, later = (at_ms, at_ms + RULE_PERIOD_MS), (at_ms + RULE_PERIOD_MS, at_ms + 2 * RULE_PERIOD_MS)
    assert episodes() == {"Busy": once, "Reader": once, "Early": later}


def test_a_replay_of_readers_says_what_live_judging_said(installation: Installation, late: tuple[int, int]) -> None:
    lane = Lane.objects.get()
    lines = [line for _, line in replayed_lines(installation, lane)]
    assert len(lines[-1]) == 6
    assert lines[-1] == written_line(lane)


@pytest.mark.parametrize("as_live_knew", [False, True], ids=["now", "then"])
@pytest.mark.parametrize("name", ["Reader", "Early"])
def test_a_backtest_of_a_reader_says_what_live_judging_said(
    late: tuple[int, int], name: str, as_live_knew: bool
) -> None:
    start_ms, _ = late
    rule = Rule.objects.get(name=name)
    report = backtests.try_rule(rule, start_ms, start_ms + 200_000, as_live_knew=as_live_knew)
    assert [(each.start_ms, each.end_ms) for each in report.episodes] == [episodes()[name]]
    assert report.effects[0].episodes == 1


def test_a_rule_that_reads_more_alerts_than_can_be_tried_is_refused(
    late: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("alerts.judging.limits.BACKTEST_PARTS_MAX", 2)
    rule = backtests.rule_to_try(Rule.objects.get(name="Busy").app, None, {"name": "All", "expr": "count(ALERTS) > 9"})
    with pytest.raises(LimitExceeded, match="too many"):
        backtests.try_rule(rule, late[0], late[0] + 10_000)


def test_what_judging_wrote_itself_is_no_news(
    installation: Installation, late: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    count = Lane.objects.get().operations.count()
    again = Lane.objects.get().operations.filter(seq__gt=count)
    for _ in range(15):
        installation.send(ALERTS_SOURCE, installation.clock.now_ms() - 30_000, 95.0)
        installation.run_quietly(RULE_PERIOD_MS // 1000)
    spans = {each.upto_ms - each.after_ms for each in again}
    assert spans == {RULE_PERIOD_MS}


def test_versions_of_before_names_were_kept_are_named_as_now(installation: Installation) -> None:
    for row in RuleVersionRow.objects.all():
        del row.content["alert"]
        row.save()
    at_ms = installation.clock.now_ms()
    installation.run_quietly(60)
    installation.send("a", installation.clock.now_ms() - 30_000, 95.0)
    installation.run_quietly(60)
    assert at_ms < episodes()["Reader"][0] == episodes()["Busy"][0]


def test_rules_of_a_file_with_a_reader_that_move_get_a_version(app: App, installation: Installation) -> None:
    lane_ms = Lane.objects.get().position_ms
    Lane.objects.update(position_ms=lane_ms + 5 * RULE_PERIOD_MS)
    moved = READS.replace("rules:", "rules:\n  - {alert: First, expr: up == 0}")
    import_files(app, {"r.yml": moved}, by=Author(), now_ms=lane_ms)
    newest = {row.rule.name: row.content["alert"]["place"] for row in RuleVersionRow.objects.filter(until_ms=None)}
    assert newest == {"First": [0, 0], "Early": [0, 1], "Busy": [0, 2], "Reader": [0, 3]}
