"""Links of mails: each does one thing, opening it does nothing, and no other text is one. Strangers are asked first."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from alerts.models import Outbox, Rule
from alerts.models.telling import Acknowledgement, Notification, Receiver, Silence
from alerts.notify import outbox
from alerts.notify.links import Purpose, link_url, read_link
from alerts.notify.registry import NOTIFIERS
from alerts.telling import link_actions
from alerts.telling.limits import ACKNOWLEDGE_MS, GROUP_REPEAT_MS, GROUP_WAIT_MS, LINK_MS, SNOOZE_MS
from spm.accounts.models import AuditEntry
from spm.clock import FakeClock
from tests.alerts.conftest import AlertingWorld

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def time(world: AlertingWorld, monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The pages' clock is the world's."""
    monkeypatch.setattr("alerts.pages.notification_links._clock", world.clock)
    return world.clock


@pytest.fixture
def note(make_rule: Callable[..., Rule], world: AlertingWorld) -> Notification:
    make_rule()
    world.evaluate_values(95)
    world.clock.advance(GROUP_WAIT_MS)
    world.tell()
    return Notification.objects.get()


@pytest.fixture
def anybody() -> Client:
    """Somebody who is not logged in, with the check against forged requests on."""
    return Client(enforce_csrf_checks=True)


def path(purpose: Purpose, key: str) -> str:
    return link_url(purpose, key).removeprefix("http://localhost:8000")


def links_of(mail: Any) -> dict[str, str]:
    """The links of a mail by their texts."""
    return dict(re.findall(r"^([A-Z][^:\n]*): http://localhost:8000(/a/\S+)$", mail.body, re.MULTILINE))


def test_the_page_of_a_link_says_that_mail_reaches_nobody(note: Notification, anybody: Client, settings: Any) -> None:
    pages = []
    for backend in ("locmem", "filebased"):
        settings.EMAIL_BACKEND = f"django.core.mail.backends.{backend}.EmailBackend"
        pages.append("Mail reaches nobody" in anybody.get(path(Purpose.SNOOZE, note.key)).content.decode())
    assert pages == [False, True]


def test_a_mail_has_a_link_for_each_act(note: Notification, mailoutbox: list[Any]) -> None:
    links = links_of(mailoutbox[0])
    assert list(links) == ["Acknowledge", "Snooze 1 h", "Silence…"]
    assert all(len(link) < 60 for link in links.values())
    html = mailoutbox[0].alternatives[0][0]
    assert all(link in html for link in links.values())


@pytest.mark.parametrize("purpose", [each for each in Purpose if each is not Purpose.CONFIRM])
def test_opening_a_link_changes_nothing(note: Notification, anybody: Client, purpose: Purpose) -> None:
    for _ in range(2):
        page = anybody.get(path(purpose, note.key))
        assert page.status_code == 200
        assert (page["Cache-Control"], page["Referrer-Policy"]) == ("no-store", "no-referrer")
        assert "[FIRING] CPU is busy" in page.content.decode()
    assert not Acknowledgement.objects.exists()
    assert not Silence.objects.exists()
    assert Receiver.objects.get().confirmed_ms is not None


def test_the_button_acknowledges_and_nothing_is_repeated(
    note: Notification, anybody: Client, world: AlertingWorld, mailoutbox: list[Any]
) -> None:
    page = anybody.post(path(Purpose.ACKNOWLEDGE, note.key))
    assert "Acknowledged for a day: 1." in page.content.decode()
    assert Acknowledgement.objects.get().who == "ops@example.org"
    assert AuditEntry.objects.get(action="alert.acknowledge").actor_name == "ops@example.org"
    world.clock.advance(GROUP_REPEAT_MS)
    world.tell()
    assert len(mailoutbox) == 1


def test_what_goes_on_is_said_again_when_its_acknowledgement_ends(
    note: Notification, anybody: Client, world: AlertingWorld, mailoutbox: list[Any]
) -> None:
    anybody.post(path(Purpose.ACKNOWLEDGE, note.key))
    for after_ms, mails in ((GROUP_REPEAT_MS, 1), (ACKNOWLEDGE_MS - GROUP_REPEAT_MS - 1, 1), (1, 2)):
        world.clock.advance(after_ms)
        world.tell()
        assert len(mailoutbox) == mails


def test_snooze_lasts_for_an_hour(note: Notification, anybody: Client, world: AlertingWorld) -> None:
    anybody.post(path(Purpose.SNOOZE, note.key))
    assert Acknowledgement.objects.get().until_ms == world.clock.now_ms() + SNOOZE_MS


def test_silence_keeps_the_rule_from_being_told_for_an_hour(
    make_rule: Callable[..., Rule], world: AlertingWorld, anybody: Client
) -> None:
    make_rule(name='CPU "hot" \\ loud')
    world.evaluate_values(95)
    world.clock.advance(GROUP_WAIT_MS)
    world.tell()
    anybody.post(path(Purpose.SILENCE, Notification.objects.get().key))
    silence = Silence.objects.get()
    assert silence.to_ms - silence.from_ms == 3_600_000
    world.evaluate_values(95, host="b")
    world.clock.advance(GROUP_WAIT_MS)
    world.tell()
    assert Notification.objects.count() == 1


def test_stop_ends_what_a_receiver_gets(
    note: Notification, anybody: Client, world: AlertingWorld, mailoutbox: list[Any]
) -> None:
    anybody.post(path(Purpose.STOP, note.key), {"List-Unsubscribe": "One-Click"})
    world.evaluate_values(*[10] * 200)
    world.tell()
    assert len(mailoutbox) == 1


def test_a_link_works_for_a_week(note: Notification, anybody: Client, world: AlertingWorld) -> None:
    world.clock.advance(LINK_MS + 1)
    for method in (anybody.get, anybody.post):
        assert method(path(Purpose.ACKNOWLEDGE, note.key)).status_code == 410
    assert not Acknowledgement.objects.exists()
    assert anybody.post(path(Purpose.STOP, note.key)).status_code == 200


def test_a_link_is_for_its_purpose_and_its_notification_alone(note: Notification, anybody: Client) -> None:
    good = path(Purpose.ACKNOWLEDGE, note.key).removeprefix("/a/")
    assert read_link(good) is not None
    wrong = [
        good.replace("ack", "silence"),
        good.replace(note.key, note.key + "1"),
        good[:-1] + ("A" if good[-1] != "A" else "B"),
        good.rpartition(".")[0],
        good + ".",
        "ack..",
        "....",
        "",
        "ack.7.3.1.é",
    ]
    for text in wrong:
        assert read_link(text) is None
    for text in filter(None, wrong):
        assert anybody.post(f"/a/{text}").status_code == 404
    assert not Acknowledgement.objects.exists()


@pytest.fixture
def asking(settings: Any) -> None:
    settings.SPM_CONFIRM_RECEIVERS = True


@pytest.mark.usefixtures("asking")
def test_a_stranger_is_asked_and_gets_nothing_before_agreeing(
    make_rule: Callable[..., Rule], world: AlertingWorld, anybody: Client, mailoutbox: list[Any]
) -> None:
    make_rule()
    world.evaluate_values(95)
    world.clock.advance(GROUP_WAIT_MS)
    world.tell()
    assert not Notification.objects.exists()
    outbox.deliver(notifiers=NOTIFIERS, clock=world.clock)
    [question] = mailoutbox
    assert (question.to, question.subject) == (["ops@example.org"], "[SPM] Notifications of Acme?")
    link = re.search(r"/a/confirm\S+", question.body)
    assert link is not None
    assert "Acme wants to notify" in anybody.get(link[0]).content.decode()
    assert Receiver.objects.get().confirmed_ms is None
    anybody.post(link[0])
    world.tell()
    notice = mailoutbox[1]
    assert notice.subject.startswith("[FIRING]")
    assert notice.extra_headers["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"
    assert "/a/stop." in notice.extra_headers["List-Unsubscribe"]


@pytest.mark.usefixtures("asking")
def test_a_member_is_not_asked(
    make_rule: Callable[..., Rule], world: AlertingWorld, people: dict[str, User], mailoutbox: list[Any]
) -> None:
    User.objects.filter(username="vera").update(email="Vera@Example.org")
    make_rule(receivers=("vera@example.org",))
    world.evaluate_values(95)
    world.clock.advance(GROUP_WAIT_MS)
    world.tell()
    assert [mail.to for mail in mailoutbox] == [["vera@example.org"]]
    assert "List-Unsubscribe" not in mailoutbox[0].extra_headers
    assert not Outbox.objects.exists()


@pytest.mark.usefixtures("asking")
def test_a_receiver_is_asked_once_whatever_names_it(make_rule: Callable[..., Rule], world: AlertingWorld) -> None:
    for name in ("CPU", "Disk"):
        make_rule(name=name)
    world.evaluate_values(95, 10, 95)
    assert [row.key for row in Outbox.objects.all()] == [f"confirm:{Receiver.objects.get().pk}"]


@pytest.mark.usefixtures("asking")
def test_a_test_waits_for_the_consent_too(
    make_rule: Callable[..., Rule], world: AlertingWorld, people: dict[str, User]
) -> None:
    make_rule()
    world.evaluate_values(95)
    client = Client()
    client.force_login(people["edda"])
    page = client.get("/alerts/notifications").content.decode()
    assert "has not agreed" in page
    assert "Send a test" not in page
    assert client.post(f"/alerts/receivers/{Receiver.objects.get().pk}/test").status_code == 302
    assert not Notification.objects.exists()


def test_the_links_of_another_notification_name_its_own_receiver(
    make_rule: Callable[..., Rule], world: AlertingWorld
) -> None:
    make_rule(receivers=("a@example.org", "b@example.org"))
    world.evaluate_values(95)
    world.clock.advance(GROUP_WAIT_MS)
    world.tell()
    for row in Notification.objects.select_related("receiver"):
        link = read_link(path(Purpose.STOP, row.key).removeprefix("/a/"))
        assert link is not None
        target = link_actions.target_of(link, world.clock.now_ms())
        assert target is not None
        assert target.receiver == row.receiver
