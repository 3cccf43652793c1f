"""Marking locks groups in the order of their ids before it moves rows: a flush takes the same locks in that order."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction

from alerts import rulebook
from alerts.models import Episode, EpisodeStatus, Lane, Rule
from alerts.models.telling import (
    ContactPoint,
    Inhibition,
    LastWord,
    Notification,
    NotificationGroup,
    Policy,
    Receiver,
)
from alerts.telling import actions, flush, hook
from alerts.telling.configuration import read_policies
from alerts.telling.limits import GROUP_INTERVAL_MS, GROUP_WAIT_MS, INHIBITION_LINGER_MS
from alerts.telling.settings import rows
from spm.accounts.models import App
from spm.errors import Refused
from tests.alerts.conftest import START_MS, AlertingWorld, draft
from tests.alerts.telling import configure

pytestmark = pytest.mark.django_db
HOSTS = "abc"


@pytest.fixture
def acts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What marking does, in order: it looks at groups, which locks them, and moves rows."""
    done, look, write = list[str](), hook._look_at, hook._write_words

    def looks(groups: Iterable[int], now_ms: int) -> None:
        chosen = sorted(groups)
        done.append(f"locks {len(chosen)}")
        look(chosen, now_ms)

    def writes(*arguments: Any) -> None:
        done.append("moves")
        write(*arguments)

    monkeypatch.setattr(hook, "_look_at", looks)
    monkeypatch.setattr(hook, "_write_words", writes)
    monkeypatch.setattr(hook, "_BATCH_ROWS", 1)
    return done


def begin(rule: Rule) -> list[int]:
    times = {"start_ms": START_MS, "created_ms": START_MS, "changed_ms": START_MS, "severity": "warning"}
    return [Episode.objects.create(rule=rule, fingerprint=each, labels={"host": each}, **times).pk for each in HOSTS]


@pytest.mark.parametrize("way", ["rule", "contact point"])
def test_a_receiver_that_is_added_while_an_alert_is_open_hears_of_it_at_once(
    app: App, make_rule: Callable[..., Rule], people: dict[str, User], world: AlertingWorld, way: str
) -> None:
    first, second = "ops@example.org", "late@example.org"
    rule = make_rule(receivers=(first,) if way == "rule" else ())
    if way == "contact point":
        configure.policy(app, 'severity="warning"', first, by=people["olga"])
    world.evaluate_values(95)
    world.tell()
    world.clock.advance(GROUP_INTERVAL_MS)
    now_ms = world.clock.now_ms()
    if way == "rule":
        rulebook.change(rule, draft(receivers=(first, second)), by=people["edda"], now_ms=now_ms)
    else:
        actions.add_contact_point(app.organisation, "point 0", (first, second), by=people["olga"], now_ms=now_ms)
    world.tell()
    assert [each.receiver.target for each in Notification.objects.order_by("pk")] == [first, second]


@pytest.mark.parametrize("status", [EpisodeStatus.ENDED, EpisodeStatus.VOID])
def test_an_alert_that_another_one_kept_back_is_told_when_that_is_over(
    app: App, make_rule: Callable[..., Rule], status: EpisodeStatus
) -> None:
    """Also if its receiver does not hear of the other one."""
    names = {"source": 'alertname="switch"', "target": 'alertname="host"'}
    Inhibition.objects.create(organisation=app.organisation, equal=["host"], **names)
    [cause, *_] = begin(make_rule(name="switch", receivers=("net@example.org",)))
    [effect, *_] = begin(make_rule(name="host", receivers=("ops@example.org",)))

    def tell(episodes: list[int], now_ms: int) -> list[str]:
        with transaction.atomic():
            hook.mark(episodes, now_ms=now_ms)
        for late_ms in (GROUP_WAIT_MS, INHIBITION_LINGER_MS + 10_000):
            Lane.objects.update(position_ms=now_ms + late_ms)
            flush.flush_due(now_ms + late_ms)
        return [each.receiver.target for each in Notification.objects.order_by("pk")]

    assert tell([cause, effect], START_MS) == ["net@example.org"]
    end_ms = START_MS + 60_000
    Episode.objects.filter(pk=cause).update(status=status, end_ms=end_ms, changed_ms=end_ms)
    assert tell([cause], end_ms) == ["net@example.org", "ops@example.org"]


def test_all_groups_are_locked_before_a_row_is_moved(
    app: App, make_rule: Callable[..., Rule], people: dict[str, User], acts: list[str]
) -> None:
    policy = configure.policy(app, 'severity="warning"', "ops@example.org", by=people["olga"], group_by=["host"])
    acts.clear()
    with transaction.atomic():
        hook.mark(begin(make_rule(receivers=())), now_ms=START_MS)
    assert acts == ["locks 3", *["moves"] * 3]
    acts.clear()
    policy.group_by = ["alertname"]
    policy.save()
    hook.mark_organisation(app.organisation_id, now_ms=START_MS)
    assert acts == ["locks 3", "locks 4", *["moves"] * 3]
    assert set(LastWord.objects.values_list("group__labels__alertname", flat=True)) == {"CPU is busy"}


def test_more_groups_than_a_statement_may_name_are_looked_at(app: App, make_rule: Callable[..., Rule]) -> None:
    receiver = Receiver.objects.create(
        organisation=app.organisation, kind="mail", target="a@example.org", created_ms=1, tokens=1
    )
    groups = [NotificationGroup(receiver=receiver, key=str(n), labels={}) for n in range(1_200)]
    NotificationGroup.objects.bulk_create(groups, batch_size=500)
    hook.mark_organisation(app.organisation_id, now_ms=START_MS)
    assert NotificationGroup.objects.filter(next_look_ms=START_MS).count() == len(groups)


def test_a_contact_point_that_is_deleted_while_policies_are_read_has_no_receivers(
    app: App, people: dict[str, User]
) -> None:
    configure.policy(app, 'severity="warning"', "ops@example.org", by=people["olga"])

    def deletes(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        if 'FROM "alerts_contactpoint"' in sql and waiting:
            waiting.pop()()
        return execute(sql, *rest)

    waiting: list[Callable[[], object]] = [partial(ContactPoint.objects.all().delete)]
    with connection.execute_wrapper(deletes):
        [node] = read_policies(app.organisation_id)
    assert (node.receivers, ContactPoint.objects.count()) == (frozenset(), 0)


def test_a_policy_that_was_deleted_meanwhile_does_not_come_back(app: App, people: dict[str, User]) -> None:
    seen = configure.policy(app, 'severity="warning"', "ops@example.org", by=people["olga"])
    rows.delete(Policy.objects.get(), by=people["olga"], now_ms=START_MS)
    with pytest.raises(Refused, match="deleted"):
        rows.write(seen, {"matchers": 'severity="info"'}, by=people["olga"], now_ms=START_MS)
    assert not Policy.objects.exists()
