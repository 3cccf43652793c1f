"""Judging at what is known: never early, complete or after patience, amended by what comes late, and replayed."""

from collections.abc import Callable
from random import Random

import pytest

from alerts.models import Episode, Lane, Operation, Rule
from alerts.models.telling import Notification
from alerts.recording.limits import ALERTS_SOURCE
from alerts.telling import charts, flush
from spm import query
from spm.accounts.models import App
from spm.limits import RULE_PERIOD_MS
from tests.alerts.conftest import AlertingWorld
from tests.alerts.knowledge_world import HOSTS, Installation, drawn_history, replayed_lines, written_line

pytestmark = pytest.mark.django_db
MakeRule = Callable[..., Rule]


@pytest.fixture
def installation(app: App, make_rule: MakeRule, world: AlertingWorld) -> Installation:
    return Installation(app.pk, world.clock)


def position() -> int:
    return Lane.objects.get().position_ms


def test_a_step_is_judged_when_its_data_is_known_and_not_before(
    installation: Installation, make_rule: MakeRule
) -> None:
    make_rule()
    installation.run_quietly(60)
    start = installation.clock.now_ms()
    for host in HOSTS:
        installation.send(host, start, 50.0, stored_in_ms=8_000 if host == "a" else 0)
    installation.tick()
    installation.tick()
    assert position() < start
    for _ in range(6):
        installation.tick()
    assert position() >= start
    assert Operation.objects.filter(behind_ms=None).exclude(vector=b"").exists()


def test_a_host_that_dies_delays_the_lane_once(installation: Installation, make_rule: MakeRule) -> None:
    make_rule(missing="alert", missing_for_ms=0)
    installation.run_quietly(120)
    lags = []
    for _ in range(60):
        now_ms = installation.clock.now_ms()
        if now_ms % RULE_PERIOD_MS == 0:
            for host in HOSTS[1:]:
                installation.send(host, now_ms, 50.0)
        installation.tick()
        lags.append(installation.clock.now_ms() - position())
    assert max(lags) >= 30_000
    assert max(lags[30:]) <= 20_000


def test_a_judge_does_not_wait_for_the_alerts_that_follow_from_its_judging(
    installation: Installation, make_rule: MakeRule
) -> None:
    make_rule()
    lags = []
    for _ in range(60):
        now_ms = installation.clock.now_ms()
        if now_ms % RULE_PERIOD_MS == 0:
            for host in HOSTS:
                installation.send(host, now_ms, 95.0)
        written_ms = position()
        installation.tick()
        if position() > written_ms:
            installation.send(ALERTS_SOURCE, position(), 1.0)
        lags.append(installation.clock.now_ms() - position())
    assert max(lags[20:]) <= 16_000


def test_a_slow_pipeline_is_never_a_dead_host(installation: Installation, make_rule: MakeRule) -> None:
    make_rule(missing="alert", missing_for_ms=0)
    installation.run_quietly(120)
    for _ in range(60):
        now_ms = installation.clock.now_ms()
        if now_ms % RULE_PERIOD_MS == 0:
            for host in HOSTS:
                installation.send(host, now_ms, 50.0, stored_in_ms=60_000 if host == "a" else 0)
        installation.tick()
    installation.run_quietly(120)
    assert not Episode.objects.filter(aspect="missing").exists()


def test_a_pipeline_that_stands_still_is_judged_late_without_absences_and_again(
    installation: Installation, make_rule: MakeRule
) -> None:
    make_rule(missing="alert", missing_for_ms=0)
    installation.run_quietly(120)
    for _ in range(300):
        now_ms = installation.clock.now_ms()
        if now_ms % RULE_PERIOD_MS == 0:
            for host in HOSTS:
                value = 95.0 if host == "b" else 50.0
                installation.send(host, now_ms, value, stored_in_ms=600_000 if host == "a" else 0)
        installation.tick()
    assert Operation.objects.exclude(behind_ms=None).exists()
    assert Lane.objects.get().behind_ms is not None
    assert set(Episode.objects.values_list("aspect", flat=True)) <= {"value"}
    installation.run_quietly(900)
    assert Lane.objects.get().behind_ms is None
    assert not Episode.objects.filter(aspect="missing").exclude(status="void").exists()


def test_late_data_amends_the_verdict_and_the_episode_follows(installation: Installation, make_rule: MakeRule) -> None:
    make_rule()
    installation.run_quietly(120)
    at_ms = installation.clock.now_ms() - 60_000
    assert not Episode.objects.exists()
    installation.send("a", at_ms, 95.0)
    installation.run_quietly(90)
    episode = Episode.objects.get()
    assert (episode.start_ms, episode.end_ms, episode.found_late) == (at_ms, at_ms + RULE_PERIOD_MS, True)


def test_rules_judge_in_time_at_what_is_new_while_a_message_with_samples_of_long_ago_waits(
    installation: Installation, make_rule: MakeRule
) -> None:
    """It may wait for an hour behind another tenant's import. Once it is stored, it is late data."""
    make_rule()
    installation.run_quietly(120)
    at_ms = installation.clock.now_ms() - 60_000
    installation.send_with_past("a", at_ms, 95.0, stored_in_ms=900_000)
    lags = []
    for _ in range(90):
        installation.run_quietly(10)
        lags.append(installation.clock.now_ms() - position())
    assert max(lags) <= 20_000
    assert not Operation.objects.exclude(behind_ms=None).exists()
    assert not Episode.objects.exists()
    installation.run_quietly(120)
    episode = Episode.objects.get()
    assert (episode.start_ms, episode.end_ms, episode.found_late) == (at_ms, at_ms + RULE_PERIOD_MS, True)


def test_a_retraction_voids_what_rested_on_its_samples(installation: Installation, make_rule: MakeRule) -> None:
    make_rule()
    installation.run_quietly(60)
    at_ms = installation.clock.now_ms()
    installation.send("d", at_ms, 95.0)
    installation.run_quietly(60)
    assert Episode.objects.get().status == "open"
    installation.retract(at_ms - 1, at_ms, source="d")
    installation.run_quietly(90)
    assert Episode.objects.get().status == "void"


def test_a_crash_of_an_accepting_process_delays_judging_and_is_not_the_end(
    installation: Installation, make_rule: MakeRule
) -> None:
    make_rule()
    installation.run_quietly(60)
    installation.acceptors.pop(0)  # it writes no round any more
    for _ in range(40):
        installation.tick()
    assert installation.clock.now_ms() - position() <= 40_000


@pytest.mark.parametrize(
    "seed",
    [
        0,
        *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 7)),
        *(pytest.param(seed, marks=pytest.mark.proof) for seed in range(7, 60)),
    ],
)
def test_a_replay_of_each_operation_says_what_live_judging_said(
    installation: Installation, make_rule: MakeRule, seed: int
) -> None:
    """``bin/test --proof replay_of_each`` draws more histories."""
    make_rule(for_ms=20_000)
    make_rule(name="missing", missing="alert", missing_for_ms=20_000, hold_ms=60_000)
    make_rule(name="all", expr="sum(cpu)", threshold=200.0, keep_firing_for_ms=20_000)
    live = {}
    for _ in drawn_history(installation, Random(seed), 600):
        lane = Lane.objects.get()
        last = Operation.objects.filter(lane=lane).first()
        if last is not None:
            live[last.seq] = written_line(lane)
    compared = 0
    for operation, line in replayed_lines(installation, Lane.objects.get()):
        if operation.seq in live:
            assert not set(line).symmetric_difference(live[operation.seq]), f"after operation {operation.seq}"
            compared += 1
    assert compared > 20


def test_the_chart_of_a_mail_shows_what_was_known_when_it_was_written(
    installation: Installation, make_rule: MakeRule, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_rule()
    installation.run_quietly(120)
    host, start_ms = HOSTS[0], installation.clock.now_ms()
    for _ in range(20):
        now_ms = installation.clock.now_ms()
        if now_ms % RULE_PERIOD_MS == 0:
            for each in HOSTS:
                installation.send(each, now_ms, 95.0 if each == host else 50.0)
        installation.tick()
    flush.flush_due(installation.clock.now_ms())
    body = Notification.objects.get().body
    monkeypatch.setattr(query, "storage_for", lambda app: installation.new_storage())
    before = charts.read_chart(body)
    installation.retract(start_ms - RULE_PERIOD_MS, installation.clock.now_ms())
    assert 95.0 in before["values"]
    assert charts.read_chart(body) == before
    assert 95.0 not in charts.read_chart({**body, "known": None}).get("values", [])
