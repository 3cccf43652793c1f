"""The migration from the outbox to telling: nobody is notified twice, what waited is delivered, and back again.

Each test is about an organisation of its own in one older database. To migrate that takes 20 seconds of CPU: SQLite
does it once, and gets a copy for each test.
"""

import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest
from django.core import mail
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from alerts.models import Episode, Rule
from alerts.models.telling import LastWord, Notification
from alerts.notify import outbox
from alerts.notify.registry import NOTIFIERS
from alerts.telling import flush, hook, sender
from spm.accounts.models import Organisation
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


@pytest.fixture(scope="module")
def copies() -> Iterator[dict[str, sqlite3.Connection]]:
    """What was copied: the database that has come from an older version."""
    copies: dict[str, sqlite3.Connection] = {}
    yield copies
    for each in copies.values():
        each.close()


@pytest.fixture
def upgraded(copies: dict[str, sqlite3.Connection]) -> Iterator[None]:
    """The older database with its organisations, migrated to the newest version."""
    if copies:
        restore(copies["upgraded"])
    else:
        write_organisations(migrate(BEFORE))
        migrate()
        if connection.vendor == "sqlite":
            copies["upgraded"] = sqlite3.connect(":memory:", check_same_thread=False)
            connection.ensure_connection()
            connection.connection.backup(copies["upgraded"])
    yield
    if copies:
        restore(copies["upgraded"])
    else:
        migrate()


def restore(copy: sqlite3.Connection) -> None:
    """Let the database be as it was."""
    connection.ensure_connection()
    copy.backup(connection.connection)


def write_organisations(old: Any) -> None:
    """Write what an older version knew, an organisation for each test."""
    rule = rule_of(old, "told")
    newer, older, dead = (episode_of(old, rule, name) for name in "abc")
    message_of(old, rule, newer, "firing", f"{rule.pk}:a:{newer.pk}:firing", state="sent")
    message_of(old, rule, older, "firing", f"{rule.pk}:b:{START_MS - 5}:firing", state="sent")
    message_of(old, rule, dead, "firing", f"{rule.pk}:c:{dead.pk}:firing", state="dead")
    rule = rule_of(old, "over")
    over = episode_of(old, rule, "a", status="ended", end_ms=START_MS + 10_000, end_reason="recovered")
    for state in ("firing", "resolved"):
        message_of(old, rule, over, state, f"{rule.pk}:a:{over.pk}:{state}", state="sent")
    rule = rule_of(old, "waits")
    message_of(old, rule, episode_of(old, rule, "a"), "firing", "old:key:1:firing")
    episode_of(old, rule_of(old, "back"), "a")


def rule_of(old: Any, name: str) -> Any:
    """Write a rule of a new organisation, with two receivers."""
    organisation = old.get_model("accounts", "Organisation").objects.create(name=name)
    app = old.get_model("accounts", "App").objects.create(organisation=organisation, name="Shop")
    fields = {"name": "CPU", "expr": "cpu", "receivers": [f"ada@{name}.example", f"bob@{name}.example"]}
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


def mails_to(name: str) -> list[tuple[list[str], str]]:
    """Return the addresses and the subject of each mail to receivers of an organisation."""
    return [(each.to, str(each.subject)) for each in mail.outbox if each.to[0].endswith(f"@{name}.example")]


def mark(name: str) -> Organisation:
    """Have all groups of an organisation looked at."""
    organisation = Organisation.objects.get(name=name)
    hook.mark_organisation(organisation.pk, now_ms=START_MS)
    return organisation


def words_of(name: str) -> Any:
    return LastWord.objects.filter(episode__rule__app__organisation__name=name)


@pytest.mark.usefixtures("upgraded")
def test_what_the_outbox_said_counts_as_told_and_only_the_end_follows() -> None:
    newer, older, _ = Episode.objects.filter(rule=Rule.objects.get(app__organisation__name="told")).order_by("pk")
    levels = words_of("told").order_by("episode", "receiver").values_list("episode", "level")
    assert list(levels) == [(newer.pk, "open")] * 2 + [(older.pk, "open")] * 2
    organisation = mark("told")
    tell()
    # only what was never delivered
    assert [subject[:16] for _, subject in mails_to("told")] == ["[FIRING] CPU: c "] * 2
    assert Notification.objects.filter(organisation=organisation).count() == 2


@pytest.mark.usefixtures("upgraded")
def test_what_was_over_stays_told() -> None:
    assert set(words_of("over").values_list("level", flat=True)) == {"ended"}
    tell()
    assert not mails_to("over")


@pytest.mark.usefixtures("upgraded")
def test_messages_that_wait_are_delivered_once_to_each_address() -> None:
    tell()
    tell()
    assert mails_to("waits") == [
        (["ada@waits.example"], "[FIRING] CPU: host=a"),
        (["bob@waits.example"], "[FIRING] CPU: host=a"),
    ]


@pytest.mark.usefixtures("upgraded")
def test_going_back_delivers_notifications_that_wait() -> None:
    mark("back")
    assert flush.flush_due(START_MS + 60_000) == 2
    rows = migrate(BEFORE).get_model("alerts", "Outbox").objects.order_by("pk")
    waiting = [row.payload for row in rows if row.payload["receivers"][0].endswith("@back.example")]
    assert [each["receivers"] for each in waiting] == [["ada@back.example"], ["bob@back.example"]]
    assert "[FIRING] CPU" in waiting[0]["subject"]
