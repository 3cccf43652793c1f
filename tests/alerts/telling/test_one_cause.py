"""A thousand alerts of one cause are one mail per receiver and group interval: from judging to a real SMTP server."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from email import message_from_bytes, policy
from typing import Any

import pytest

from alerts.models import Episode, Rule
from alerts.models.telling import LastWord, Notification
from alerts.notify.registry import NOTIFIERS
from alerts.telling import flush, limits, sender
from spm.accounts.models import App
from tests.alerts.conftest import PERIOD_MS, AlertingWorld
from tests.alerts.notify.mail_server import MailServer, mail_server
from tests.alerts.telling import configure

pytestmark = pytest.mark.django_db
RECEIVERS = ("ada@example.org", "bob@example.org")
HOSTS = [f"web-{n}" for n in range(1_000)]
BUSY, WELL = 95.0, 10.0
BEAT_MS = 1_000
MAIL_BYTES_MAX = 100_000


@pytest.fixture
def server() -> Iterator[MailServer]:
    with mail_server() as running:
        yield running


def no_chart(body: Mapping[str, Any]) -> Mapping[str, Any]:
    return {}


def live(world: AlertingWorld, values: Mapping[str, float], span_ms: int) -> None:
    """Judge what the values change, and tell at each beat of a span, as the worker does."""
    world.machine.values = dict(values)
    world.evaluate()
    for _ in range(0, span_ms, BEAT_MS):
        flush.flush_due(world.clock.now_ms())
        sender.deliver(notifiers=NOTIFIERS, clock=world.clock, read_chart=no_chart)
        world.clock.advance(BEAT_MS)


def counts(server: MailServer) -> dict[str, list[Counter[str]]]:
    """What each receiver was told, mail by mail, in the order in which they came: how many lines of each kind."""
    mails: dict[str, list[Counter[str]]] = {each: [] for each in RECEIVERS}
    for [address], data in server.received:
        assert len(data) < MAIL_BYTES_MAX
        subject = str(message_from_bytes(data, policy=policy.default)["Subject"])
        words = re.findall(r"(FIRING|RESOLVED)(?: (\d+))?", subject.split("]")[0])
        mails[address].append(Counter({word: int(count or 1) for word, count in words}))
    return mails


def for_each(mails: list[dict[str, int]]) -> dict[str, list[dict[str, int]]]:
    """Each receiver was told the same."""
    return dict.fromkeys(RECEIVERS, mails)


@pytest.mark.slow
def test_a_thousand_series_of_a_rule_are_one_mail_per_receiver_and_interval(
    make_rule: Callable[..., Rule], world: AlertingWorld, server: MailServer
) -> None:
    make_rule(receivers=RECEIVERS)
    live(world, dict.fromkeys(HOSTS[:600], BUSY), 30_000)
    assert counts(server) == for_each([{"FIRING": 600}])
    live(world, dict.fromkeys(HOSTS[:800], BUSY), PERIOD_MS)
    live(world, dict.fromkeys(HOSTS, BUSY), limits.GROUP_INTERVAL_MS)
    assert counts(server) == for_each([{"FIRING": 600}, {"FIRING": 400}])
    live(world, dict.fromkeys(HOSTS, WELL), limits.GROUP_INTERVAL_MS)
    assert counts(server) == for_each([{"FIRING": 600}, {"FIRING": 400}, {"RESOLVED": 1_000}])
    assert set(LastWord.objects.values_list("level", flat=True)) == {"ended"}


@pytest.mark.slow
def test_a_thousand_groups_of_one_cause_are_one_mail_per_receiver(
    make_rule: Callable[..., Rule], world: AlertingWorld, app: App, people: dict[str, Any], server: MailServer
) -> None:
    configure.policy(app, 'severity="warning"', *RECEIVERS, by=people["olga"], group_by=["host"])
    make_rule(receivers=())
    live(world, dict.fromkeys(HOSTS, BUSY), limits.GROUP_INTERVAL_MS)
    assert counts(server) == for_each([{"FIRING": 1_000}])
    body = Notification.objects.all()[0].body
    assert (len(body["groups"]), body["groups_more"]) == (limits.GROUPS_IN_FULL_MAX, 950)
    written = message_from_bytes(server.received[0][1], policy=policy.default).get_body(("plain",))
    assert "and 950 more firing, in 1,000 groups together: http" in str(written and written.get_content())
    live(world, dict.fromkeys(HOSTS, WELL), limits.GROUP_INTERVAL_MS)
    assert counts(server) == for_each([{"FIRING": 1_000}, {"RESOLVED": 1_000}])


def test_groups_that_come_one_after_the_other_are_a_digest_per_interval(
    make_rule: Callable[..., Rule], world: AlertingWorld, app: App, people: dict[str, Any], server: MailServer
) -> None:
    configure.policy(app, 'severity="warning"', *RECEIVERS, by=people["olga"], group_by=["host"])
    make_rule(receivers=())
    for count in range(10, 110, 10):
        live(world, dict.fromkeys(HOSTS[:count], BUSY), PERIOD_MS)
    live(world, dict.fromkeys(HOSTS[:100], BUSY), limits.GROUP_INTERVAL_MS)
    assert counts(server) == for_each([{"FIRING": 10}, {"FIRING": 90}])


def test_what_a_mail_has_no_room_for_is_counted_in_it_and_known_as_told(
    make_rule: Callable[..., Rule], world: AlertingWorld, server: MailServer
) -> None:
    make_rule(receivers=RECEIVERS[:1])
    live(world, dict.fromkeys(HOSTS, BUSY), 10_000)
    body = Notification.objects.get().body
    assert (len(body["lines"]), body["more"]) == (limits.LINES_IN_FULL_MAX, {"firing": 950})
    assert LastWord.objects.filter(level="open").count() == Episode.objects.count() == len(HOSTS)
