"""The last seven days of rules: in which cells they fired or could not be judged, however many alerts they had."""

import random
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from alerts.history import limits
from alerts.history.weeks import CELL_MS, CELLS, Week, read_weeks
from alerts.models import Aspect, Episode, EpisodeStatus, Rule
from spm.clock import SystemClock
from tests.alerts.conftest import START_MS

pytestmark = pytest.mark.django_db
NOW_MS = START_MS // CELL_MS * CELL_MS + 600_000
FIRST_MS = (NOW_MS // CELL_MS - CELLS + 1) * CELL_MS
MakeRule = Callable[..., Rule]


def fire(rule: Rule, start_ms: int, end_ms: int | None, number: int = 0, aspect: str = Aspect.VALUE) -> Episode:
    status = EpisodeStatus.OPEN if end_ms is None else EpisodeStatus.ENDED
    times = {"start_ms": start_ms, "end_ms": end_ms, "created_ms": start_ms, "changed_ms": start_ms}
    return Episode.objects.create(
        rule=rule, fingerprint=str(number), labels={}, severity="warning", status=status, aspect=aspect, **times
    )


def states(week: Week) -> list[str]:
    """The state of each cell."""
    cells = [""] * CELLS
    for each in week.stretches:
        cells[each.first : each.first + each.size] = [each.state] * each.size
    return cells


def test_a_rule_that_never_fired_has_an_empty_week(make_rule: MakeRule) -> None:
    rule = make_rule()
    assert read_weeks([rule.pk], NOW_MS) == {rule.pk: Week(0, 0, [])}
    assert read_weeks([], NOW_MS) == {}


@pytest.mark.parametrize(
    ("start", "end", "cells"),
    [
        (FIRST_MS, FIRST_MS + 1, [0]),
        (FIRST_MS + CELL_MS - 1, FIRST_MS + CELL_MS, [0]),
        (FIRST_MS + CELL_MS - 1, FIRST_MS + CELL_MS + 1, [0, 1]),
        (FIRST_MS - 5 * CELL_MS, FIRST_MS, []),
        (FIRST_MS - 5 * CELL_MS, FIRST_MS + 1, [0]),
        (NOW_MS, None, [83]),
        (NOW_MS - CELL_MS, None, [82, 83]),
        (FIRST_MS - CELL_MS, None, [*range(84)]),
    ],
)
def test_an_alert_lies_in_the_cells_in_which_it_fired(
    make_rule: MakeRule, start: int, end: int | None, cells: list[int]
) -> None:
    rule = make_rule()
    fire(rule, start, end)
    week = read_weeks([rule.pk], NOW_MS)[rule.pk]
    assert [number for number, state in enumerate(states(week)) if state] == cells
    assert week.firing == len(cells)


def test_cells_are_those_of_each_alert_by_itself(make_rule: MakeRule) -> None:
    draw, rules = random.Random(7), [make_rule(name=name) for name in "abc"]
    expected = {rule.pk: [""] * CELLS for rule in rules}
    for number in range(300):
        rule, is_error = draw.choice(rules), draw.random() < 0.3
        start = draw.randrange(FIRST_MS - 10 * CELL_MS, NOW_MS)
        end = min(start + draw.randrange(1, 3 * CELL_MS), NOW_MS)
        fire(rule, start, end, number, Aspect.ERROR if is_error else Aspect.VALUE)
        for cell in range(max((start - FIRST_MS) // CELL_MS, 0), (end - 1 - FIRST_MS) // CELL_MS + 1):
            expected[rule.pk][cell] = "error" if is_error and expected[rule.pk][cell] != "firing" else "firing"
    weeks = read_weeks([rule.pk for rule in rules], NOW_MS)
    assert {rule: states(week) for rule, week in weeks.items()} == expected


def test_an_alert_that_never_was_is_left_out(make_rule: MakeRule) -> None:
    rule = make_rule()
    fire(rule, NOW_MS - 1, NOW_MS)
    Episode.objects.update(status=EpisodeStatus.VOID)
    assert read_weeks([rule.pk], NOW_MS)[rule.pk].stretches == []


def test_a_rule_that_flaps_costs_one_statement_of_a_row_for_each_pair_of_cells(
    make_rule: MakeRule, monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any
) -> None:
    rule = make_rule()
    for number in range(60):
        start_ms = FIRST_MS + number // 20 * CELL_MS + number * 1_000
        fire(rule, start_ms, start_ms + 1, number)
    monkeypatch.setattr(limits, "WEEK_GROUPS_MAX", 3)
    with django_assert_num_queries(1):
        week = read_weeks([rule.pk], NOW_MS)[rule.pk]
    assert week.firing == 3


def test_the_list_of_rules_draws_the_week_and_says_it_in_words(
    make_rule: MakeRule, people: dict[str, Any], client: Client
) -> None:
    rule, now_ms = make_rule(), SystemClock().now_ms()
    fire(rule, now_ms - 3 * CELL_MS, now_ms - 2 * CELL_MS)
    client.force_login(people["edda"])
    page = client.get(f"/alerts/?app={rule.app_id}").content.decode()
    assert "fired in 2 of 84 parts of two hours" in page
    assert '<rect class="firing" x="80" width="2"' in page
