"""Which alerts are incidents of a range, in which lanes, and how fast people took and ended them."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import User

from alerts.history import limits
from alerts.history.incidents import IncidentQuery, Incidents, read_incidents
from alerts.models import Aspect, Episode, EpisodeStatus, Rule
from alerts.models.telling import Acknowledgement
from alerts.telling import actions
from spm.accounts.models import App
from spm.errors import BadQuery
from tests.alerts.noise.past import MINUTE_MS, alert

pytestmark = pytest.mark.django_db
MakeRule = Callable[..., Rule]
FROM_MS, TO_MS = 100 * MINUTE_MS, 200 * MINUTE_MS


@pytest.fixture
def query(app: App) -> IncidentQuery:
    return IncidentQuery(app.organisation_id, FROM_MS, TO_MS)


def hosts(incidents: Incidents) -> list[str]:
    return [each.labels["host"] for each in incidents.all]


def test_alerts_count_that_fired_at_any_time_of_the_range(make_rule: MakeRule, query: IncidentQuery) -> None:
    rule = make_rule()
    begun = {"over before": 90, "ends in it": 99, "within": 150, "open": 160, "begins after": 200}
    for host, minute in begun.items():
        alert(rule, minute * MINUTE_MS, minutes=None if host == "open" else 10, host=host)
    assert hosts(read_incidents(query)) == ["open", "within", "ends in it"]


@pytest.mark.parametrize(
    "fields", [{"status": EpisodeStatus.VOID}, {"status": EpisodeStatus.MERGED}, {"aspect": Aspect.ERROR}], ids=str
)
def test_what_never_was_and_rules_that_could_not_be_judged_are_no_incidents(
    make_rule: MakeRule, query: IncidentQuery, fields: dict[str, Any]
) -> None:
    alert(make_rule(), FROM_MS, **fields)
    assert read_incidents(query).all == []


def test_missing_data_is_an_incident(make_rule: MakeRule, query: IncidentQuery) -> None:
    alert(make_rule(), FROM_MS, host="silent", aspect=Aspect.MISSING)
    assert hosts(read_incidents(query)) == ["silent"]


def test_those_that_began_last_come_first_of_equal_ones_the_one_found_last(
    make_rule: MakeRule, query: IncidentQuery
) -> None:
    rule = make_rule()
    for host, minute in (("new", 120), ("first of two", 110), ("second of two", 110), ("old", 100)):
        alert(rule, minute * MINUTE_MS, host=host)
    assert hosts(read_incidents(query)) == ["new", "second of two", "first of two", "old"]


def test_lanes_are_rules_those_with_open_alerts_first_and_then_the_newest(
    make_rule: MakeRule, query: IncidentQuery
) -> None:
    for name, minute, ends in (
        ("a", 110, (1,)),
        ("b", 120, (1,)),
        ("two open", 104, (None, None)),
        ("z", 105, (None,)),
    ):
        rule = make_rule(name=name)
        for number, minutes in enumerate(ends):
            alert(rule, minute * MINUTE_MS, minutes=minutes, host=str(number))
    lanes = read_incidents(query).lanes
    assert [(lane.name, lane.open) for lane in lanes] == [("z", 1), ("two open", 2), ("b", 0), ("a", 0)]


def test_lanes_may_be_the_values_of_a_label(make_rule: MakeRule, query: IncidentQuery) -> None:
    for name, host in (("CPU", "a"), ("Disk", "a"), ("Disk", "b")):
        alert(make_rule(name=name), FROM_MS, host=host)
    lanes = read_incidents(replace(query, label="host")).lanes
    assert {lane.name: len(lane.incidents) for lane in lanes} == {"a": 2, "b": 1}
    assert [lane.name for lane in read_incidents(replace(query, label="zone")).lanes] == [""]


def test_lanes_may_be_the_values_of_a_label_that_the_rule_gives(make_rule: MakeRule, query: IncidentQuery) -> None:
    for severity in ("warning", "critical"):
        alert(make_rule(severity=severity), FROM_MS)
    assert {lane.name for lane in read_incidents(replace(query, label="severity")).lanes} == {"warning", "critical"}


def test_two_rules_of_one_name_have_a_lane_each(make_rule: MakeRule, query: IncidentQuery) -> None:
    for _ in range(2):
        alert(make_rule(), FROM_MS)
    assert len(read_incidents(query).lanes) == 2


def test_the_mean_time_to_acknowledge_counts_from_when_an_alert_was_known_to_when_it_was_taken_first(
    make_rule: MakeRule, query: IncidentQuery, people: dict[str, User]
) -> None:
    rule = make_rule()
    for host, after_ms in (("a", 60_000), ("b", 120_000)):
        taken = alert(rule, FROM_MS, minutes=None, host=host, created_ms=FROM_MS + 5_000)
        for now_ms in (taken.created_ms + after_ms, taken.created_ms + 900_000):  # the second time is a snooze
            actions.acknowledge_episode(taken, by=people["edda"], for_ms=1_000, now_ms=now_ms)
    alert(rule, FROM_MS, minutes=None, host="nobody's")
    incidents = read_incidents(query)
    assert (incidents.acknowledged, incidents.mean_to_acknowledge_ms) == (2, 90_000)


def test_what_was_taken_before_it_was_known_was_taken_at_once(
    make_rule: MakeRule, query: IncidentQuery, people: dict[str, User]
) -> None:
    """By a clock that went back in between."""
    taken = alert(make_rule(), FROM_MS, minutes=None, created_ms=FROM_MS + 5_000)
    actions.acknowledge_episode(taken, by=people["edda"], for_ms=1_000, now_ms=FROM_MS)
    assert read_incidents(query).mean_to_acknowledge_ms == 0


def test_the_mean_time_to_resolve_is_that_of_alerts_that_are_over(make_rule: MakeRule, query: IncidentQuery) -> None:
    rule = make_rule()
    for host, minutes in (("a", 2), ("b", 4), ("c", None)):
        alert(rule, FROM_MS, minutes=minutes, host=host, created_ms=FROM_MS + 7_000)
    incidents = read_incidents(query)
    assert (incidents.open, incidents.mean_to_resolve_ms) == (1, 3 * MINUTE_MS)


def test_without_incidents_there_is_no_mean(query: IncidentQuery) -> None:
    incidents = read_incidents(query)
    assert (incidents.mean_to_acknowledge_ms, incidents.mean_to_resolve_ms) == (None, None)


def test_matchers_severity_and_app_choose(make_rule: MakeRule, query: IncidentQuery) -> None:
    for host, severity in (("a", "warning"), ("b", "critical")):
        alert(make_rule(severity=severity), FROM_MS, host=host)
    assert hosts(read_incidents(replace(query, severity="critical"))) == ["b"]
    assert hosts(read_incidents(replace(query, matchers='host="a"'))) == ["a"]
    assert hosts(read_incidents(replace(query, matchers=" "))) == ["b", "a"]
    assert [hosts(read_incidents(replace(query, app=number))) for number in (0, 10**9)] == [[], []]


def test_alerts_of_an_app_that_is_being_deleted_are_left_out(
    app: App, make_rule: MakeRule, query: IncidentQuery
) -> None:
    alert(make_rule(), FROM_MS)
    App.objects.filter(pk=app.pk).update(going=datetime(2026, 1, 1, tzinfo=UTC))
    assert read_incidents(query).all == []


def test_alerts_of_another_organisation_are_not_read(
    foreign_app: App, make_rule: MakeRule, query: IncidentQuery
) -> None:
    foreign = Rule.objects.create(app=foreign_app, name="Secret", expr="x", created_ms=1, changed_ms=1)
    alert(foreign, FROM_MS, host="theirs")
    alert(make_rule(), FROM_MS, host="ours")
    assert hosts(read_incidents(query)) == ["ours"]
    assert hosts(read_incidents(replace(query, app=foreign_app.pk))) == []


def test_more_alerts_than_the_bound_are_cut_and_that_is_said(
    make_rule: MakeRule, query: IncidentQuery, monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any
) -> None:
    monkeypatch.setattr(limits, "INCIDENTS_MAX", 2)
    rule = make_rule()
    for minute in (101, 102):
        alert(rule, minute * MINUTE_MS, host=str(minute))
    assert not read_incidents(query).is_cut
    alert(rule, 103 * MINUTE_MS, host="103")
    alert(rule, 104 * MINUTE_MS, host="104")
    with django_assert_num_queries(2) as queries:
        incidents = read_incidents(query)
    assert (hosts(incidents), incidents.is_cut) == (["104", "103"], True)
    assert queries[0]["sql"].endswith("LIMIT 3"), "no more rows are read than say that there are more"


def test_all_of_many_alerts_may_be_taken(make_rule: MakeRule, query: IncidentQuery, people: dict[str, User]) -> None:
    first, count = alert(make_rule(), FROM_MS), 1_001  # more than two statements ask for
    Episode.objects.bulk_create(
        [
            Episode(
                rule=first.rule,
                labels={},
                start_ms=FROM_MS,
                severity="info",
                created_ms=1,
                changed_ms=1,
                fingerprint=str(n),
                end_ms=TO_MS,
                status="ended",
            )
            for n in range(count - 1)
        ]
    )
    times = {"at_ms": TO_MS, "first_ms": TO_MS, "until_ms": TO_MS}
    Acknowledgement.objects.bulk_create(
        [Acknowledgement(episode=each, by=people["edda"], **times) for each in Episode.objects.all()]
    )
    incidents = read_incidents(query)
    assert (len(incidents.all), incidents.acknowledged) == (count, count)


def test_a_range_may_be_as_long_as_alerts_are_kept(query: IncidentQuery) -> None:
    assert read_incidents(replace(query, to_ms=FROM_MS + limits.RANGE_MS_MAX)).all == []


@pytest.mark.parametrize(
    "changes",
    [{"to_ms": FROM_MS}, {"to_ms": FROM_MS + limits.RANGE_MS_MAX + 1}, {"matchers": "host"}],
    ids=["empty", "too long", "no matcher"],
)
def test_a_range_or_matchers_that_cannot_be_are_refused(query: IncidentQuery, changes: dict[str, Any]) -> None:
    with pytest.raises(BadQuery):
        read_incidents(replace(query, **changes))


def test_reading_takes_as_many_queries_for_many_alerts_as_for_one(
    make_rule: MakeRule, query: IncidentQuery, people: dict[str, User], django_assert_num_queries: Any
) -> None:
    rule = make_rule()
    for n in range(20):
        taken = alert(rule, FROM_MS, minutes=None, host=str(n))
        actions.acknowledge_episode(taken, by=people["edda"], for_ms=1_000, now_ms=FROM_MS)
    with django_assert_num_queries(2):
        shown = [str(each.taken and each.taken.who) for each in read_incidents(query).all]
    assert len(shown) == 20
