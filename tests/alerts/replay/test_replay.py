"""Replay is live: days of many rules, judged while data comes late, is retracted, and judges are killed.

Every operation of live judging leaves on record which transitions it added and which it found to hold no longer. A
replay of the operations, each at what it knew, must add and drop the same; a difference that a later operation mends is
a difference all the same.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from django.db import connection

from alerts import journal, rulebook
from alerts.backtesting import backtests
from alerts.judging.versions import Steps
from alerts.models import AlertEvent, Episode, Lane, Operation, Rule
from spm import query
from spm.accounts.models import App
from spm.limits import RULE_PERIOD_MS
from tests.alerts.conftest import AlertingWorld, draft
from tests.alerts.knowledge_world import Installation, written_line
from tests.alerts.replay import checkpoint, parts
from tests.alerts.replay.comparison import ALWAYS, differences, episodes_of, written_episodes
from tests.alerts.replay.history import COMPOSITES, DAY_MS, FORMS, MINUTE_MS, Living, forms
from tests.alerts.replay.parts import Part

pytestmark = pytest.mark.django_db


@dataclass
class Edit:
    """At noon some rules change, one goes, and composites come."""

    app: int
    rules: list[int]
    first: int
    is_done: bool = False

    def __call__(self, now_ms: int) -> None:
        if self.is_done:
            return
        self.is_done, app = True, App.objects.get(pk=self.app)
        rules = list(Rule.objects.filter(pk__in=self.rules).order_by("pk"))
        for rule, form in zip(rules[:5], forms(5, self.first), strict=True):
            rulebook.change(rule, draft(**{**form, "threshold": form["threshold"] + 3}), by=None, now_ms=now_ms)
        rulebook.change(rules[6], draft(**{**FORMS[6], "expr": "cpu > 65"}), by=None, now_ms=now_ms)
        rulebook.delete(rules[7], by=None, now_ms=now_ms)
        for expr in COMPOSITES:
            form = {"kind": "composite", "by": ("host",), "expr": expr.format(*self.rules)}
            rulebook.write(app, draft(**form), by=None, now_ms=now_ms)


@pytest.fixture
def installation(app: App, world: AlertingWorld, monkeypatch: pytest.MonkeyPatch) -> Installation:
    world.clock.advance(-world.clock.now_ms() % MINUTE_MS)
    installation = Installation(app.pk, world.clock)
    monkeypatch.setattr(query, "configure", lambda url: None)
    monkeypatch.setattr(query, "storage_for", lambda number: installation.new_storage())
    return installation


def begin(installation: Installation, part: Part) -> tuple[Living, Edit]:
    """Write a part's rules, before its first day."""
    app, first_ms = App.objects.get(pk=installation.app), installation.clock.now_ms()
    drafts = [draft(**form) for form in forms(part.rules - len(COMPOSITES), part.first)]
    rules = [rulebook.write(app, each, by=None, now_ms=first_ms).pk for each in drafts]
    return Living.begin(installation, part.rules + part.first), Edit(app.pk, rules, part.first)


def live_and_replay(
    installation: Installation, part: Part, folder: Path | None = None, day_ms: int = DAY_MS
) -> dict[str, float]:
    """Live a part's days and replay them; returns what there was to compare, once nothing differs.

    With a folder each day is kept, and days that another session has lived are not lived again.
    """
    life = checkpoint.load(folder, installation) if folder is not None else None
    living, edit = (life.living, life.edit) if life is not None else begin(installation, part)
    began_s = time.monotonic() - (life.lived_s if life is not None else 0)

    def end_day() -> None:
        lived_s = time.monotonic() - began_s
        if folder is not None:
            checkpoint.save(folder, living, edit, lived_s)
        print(f"{part}: day {living.days} of {part.days:g} after {lived_s:.0f} s", flush=True)

    living.live(int(part.days * DAY_MS), edit, end_day, day_ms)
    lived_s = time.monotonic() - began_s
    lane = Lane.objects.get()
    versions = journal.versions_between(lane, 0, ALWAYS)
    steps = Steps(lane.first_ms + RULE_PERIOD_MS, lane.position_ms, RULE_PERIOD_MS)
    changes, mismatches, last = differences(lane, backtests.said_as_live_knew(lane.app_id, versions, steps))
    assert mismatches == []
    assert episodes_of(last) == written_episodes()
    assert min(living.counts.values()) > 0
    assert changes > 20
    return {
        "operations": Operation.objects.count(),
        "with changes": changes,
        "transitions": AlertEvent.objects.count(),
        "episodes": Episode.objects.count(),
        **living.counts,
        "differences": len(mismatches),
        "seconds of living": round(lived_s),
        "seconds of replay": round(time.monotonic() - began_s - lived_s),
    }


@pytest.mark.parametrize(
    ("rules", "days"),
    [
        pytest.param(20, 0.1, id="20 rules for some hours"),
        pytest.param(100, 0.67, id="100 rules for sixteen hours", marks=pytest.mark.slow),
    ],
)
def test_a_replay_of_days_says_after_each_operation_what_live_judging_said(
    installation: Installation, rules: int, days: float, figure: Callable[[str], None]
) -> None:
    """The long form follows."""
    shown = live_and_replay(installation, Part(1, 1, 0, rules, days))
    figure(f"{rules} rules, {days:g} days: {parts.spell(shown)}")


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(connection.vendor != "sqlite", reason="only SQLite can be kept")
def test_a_life_goes_on_in_another_session_as_it_would_have_in_one(installation: Installation, tmp_path: Path) -> None:
    duration_ms, day_ms = 40 * MINUTE_MS, 25 * MINUTE_MS
    living, edit = begin(installation, Part(1, 1, 0, 15, 1))
    living.live(duration_ms, edit, lambda: checkpoint.save(tmp_path, living, edit, 0), day_ms)
    in_one = written_line(Lane.objects.get()), dict(living.counts)
    life = checkpoint.load(tmp_path, installation)
    assert life is not None
    assert len(written_line(Lane.objects.get())) < len(in_one[0])
    life.living.live(duration_ms, life.edit, lambda: None, day_ms)
    assert (written_line(Lane.objects.get()), dict(life.living.counts)) == in_one


@pytest.mark.proof
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("part", [*parts.parts()], ids=str)
def test_a_replay_of_a_month_says_what_live_judging_said(
    installation: Installation, part: Part, figure: Callable[[str], None], pytestconfig: pytest.Config
) -> None:
    """``bin/test --proof replay_of_a_month`` lives a month with a thousand rules; ``-n 2`` lives both parts at once.

    ``bin/test --proof "replay_of_a_month and part-2"`` one part. Days that were lived are kept, and so is what parts
    have shown: a session that ended goes on with the next one.
    """
    shown = live_and_replay(installation, part, parts.folder_of(pytestconfig, part))
    figure(f"{part}, {part.rules} rules, {part.days:g} days: {parts.spell(shown)}")
    figure(total := parts.keep(pytestconfig, part, shown))
    print(f"{part}, {part.rules} rules, {part.days:g} days: {parts.spell(shown)}\n{total}", flush=True)
