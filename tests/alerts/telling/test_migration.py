"""The migration from the outbox to telling: nobody is notified twice, what waited is delivered, and back again."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.core import mail
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from alerts.models import Episode
from alerts.models.telling import LastWord, Notification
from alerts.notify import outbox
from alerts.notify.registry import NOTIFIERS
from alerts.telling import flush, hook, sender
from spm.clock import FakeClock
from tests.alerts.conftest import START_MS
from tests.spm.accounts.older_database import older_executor

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]
BEFORE = [("alerts", "0007_without_alerts")]


def migrate(target: list[tuple[str, str]] | None = None) -> Any:
    """Migrate, without a target to the newest, and return the models of then."""
    executor = older_executor() if target else MigrationExecutor(connection)
    executor.migrate(target or executor.loader.graph.leaf_nodes("alerts"))
    return MigrationExecutor(connection).loader.project_state(target).apps


@pytest.fixture
def old() -> Iterator[Any]:
    yield migrate(BEFORE)
    migrate()


def rule_of(old: Any) -> Any:
    organisation = old.get_model("accounts", "Organisation").objects.create(name="Acme")
    app = old.get_model("accounts", "App").objects.create(organisation=organisation, name="Shop")
    fields = {"name": "CPU", "expr": "cpu", "receivers": ["ada@example.org", "bob@example.org"]}
    return old.get_model("alerts", "Rule").objects.create(app=app, created_ms=START_MS, changed_ms=START_MS, **fields)


def episode_of(old: Any, rule: Any, name: str, **changes: Any) -> Any:
    fields = {"labels": {"host": name}, "severity": "warning", "start_ms": START_MS, "created_ms": START_MS}
    return old.get_model("alerts", "Episode").objects.create(
        rule_id=rule.pk, fingerprint=name, **{**fields, "changed_ms": START_MS, **changes}
    )


def message_of(old: Any, rule: Any, episode: Any, what: str, key: str, **changes: Any) -> Any:
    at_ms = episode.start_ms if what == "firing" else episode.end_ms
    payload = {"rule": rule.pk, "name": "CPU", "state": what, "labels": episode.labels, "at_ms": at_ms, "expr": "cpu"}
    payload |= {"fingerprint": episode.fingerprint, "receivers": rule.receivers}
    fields = {"kind": "mail", "payload": payload, "created_ms": START_MS, "next_attempt_ms": 0, "app_id": rule.app_id}
    return old.get_model("alerts", "Outbox").objects.create(key=key, **{**fields, **changes})


def tell() -> None:
    clock = FakeClock(START_MS + 60_000)
    flush.flush_due(clock.now_ms())
    sender.deliver(notifiers=NOTIFIERS, clock=clock)
    outbox.deliver(notifiers=NOTIFIERS, clock=clock)


def test_what_the_outbox_said_counts_as_told_and_only_the_end_follows(old: Any) -> None:
    rule = rule_of(old)
    newer, older, dead = (episode_of(old, rule, name) for name in "abc")
    message_of(old, rule, newer, "firing", f"{rule.pk}:a:{newer.pk}:firing", state="sent")
    message_of(old, rule, older, "firing", f"{rule.pk}:b:{START_MS - 5}:firing", state="sent")
    message_of(old, rule, dead, "firing", f"{rule.pk}:c:{dead.pk}:firing", state="dead")
    migrate()
    levels = LastWord.objects.order_by("episode", "receiver").values_list("episode", "level")
    assert list(levels) == [(newer.pk, "open")] * 2 + [(older.pk, "open")] * 2
    organisation = Episode.objects.select_related("rule__app").get(pk=newer.pk).rule.app.organisation_id
    hook.mark_organisation(organisation, now_ms=START_MS)
    tell()
    assert [each.subject[:16] for each in mail.outbox] == ["[FIRING] CPU: c "] * 2  # only what was never delivered
    assert Notification.objects.count() == 2


def test_what_was_over_stays_told(old: Any) -> None:
    rule = rule_of(old)
    over = episode_of(old, rule, "a", status="ended", end_ms=START_MS + 10_000, end_reason="recovered")
    for state in ("firing", "resolved"):
        message_of(old, rule, over, state, f"{rule.pk}:a:{over.pk}:{state}", state="sent")
    migrate()
    assert set(LastWord.objects.values_list("level", flat=True)) == {"ended"}
    tell()
    assert not mail.outbox


def test_messages_that_wait_are_delivered_once_to_each_address(old: Any) -> None:
    rule = rule_of(old)
    message_of(old, rule, episode_of(old, rule, "a"), "firing", "old:key:1:firing")
    migrate()
    tell()
    tell()
    assert [(each.to, each.subject) for each in mail.outbox] == [
        (["ada@example.org"], "[FIRING] CPU: host=a"),
        (["bob@example.org"], "[FIRING] CPU: host=a"),
    ]


def test_going_back_delivers_notifications_that_wait(old: Any) -> None:
    rule = rule_of(old)
    episode = episode_of(old, rule, "a")
    migrate()
    organisation = Episode.objects.select_related("rule__app").get(pk=episode.pk).rule.app.organisation_id
    hook.mark_organisation(organisation, now_ms=START_MS)
    assert flush.flush_due(START_MS + 60_000) == 2
    migrate(BEFORE)
    rows = old.get_model("alerts", "Outbox").objects.order_by("pk")
    assert [row.payload["receivers"] for row in rows] == [["ada@example.org"], ["bob@example.org"]]
    assert "[FIRING] CPU" in rows[0].payload["subject"]
