"""The pages of notifications and silences: the log, tries, tests, contact points, and the live preview."""

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from alerts.models import Rule
from alerts.models.telling import ContactPoint, Notification, NotificationGroup, Receiver, Silence
from alerts.telling.limits import GROUP_WAIT_MS
from spm.accounts.models import App
from tests.alerts.conftest import AlertingWorld

pytestmark = pytest.mark.django_db


@pytest.fixture
def note(make_rule: Callable[..., Rule], world: AlertingWorld) -> Notification:
    """A notification that was delivered."""
    make_rule()
    world.evaluate_values(95)
    world.clock.advance(GROUP_WAIT_MS)
    world.tell()
    return Notification.objects.get()


def text(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200
    return answer.content.decode()


def test_the_log_shows_what_was_sent_to_whom(note: Notification, login: Callable[[str], Client]) -> None:
    page = text(login("vera"), "/alerts/notifications")
    assert "[FIRING] CPU is busy: a 95 (&gt; 90) · Shop" in page
    assert "ops@example.org" in page
    assert '<span class="badge ok">sent</span>' in page
    shown = text(login("vera"), f"/alerts/notifications/{note.pk}")
    assert "Message-ID: &lt;" in shown
    assert note.key in shown


def test_the_old_address_of_mail_leads_to_notifications(app: App, login: Callable[[str], Client]) -> None:
    answer = login("vera").get(f"/alerts/mail?app={app.pk}")
    assert (answer.status_code, answer["Location"]) == (302, f"/alerts/notifications?app={app.pk}")
    assert login("vera").get("/alerts/mail/7")["Location"] == "/alerts/notifications"


@pytest.mark.parametrize(("backend", "warns"), [("filebased", True), ("smtp", False)])
def test_mail_that_goes_to_a_folder_says_so(
    app: App, login: Callable[[str], Client], settings: Any, backend: str, warns: bool
) -> None:
    settings.EMAIL_BACKEND = f"django.core.mail.backends.{backend}.EmailBackend"
    assert ("Mail reaches nobody" in text(login("vera"), "/alerts/notifications")) is warns


def test_an_editor_tries_a_dead_notification_again(note: Notification, login: Callable[[str], Client]) -> None:
    Notification.objects.update(state="dead", answer="550 no such user")
    NotificationGroup.objects.update(blocked_until_ms=2**60, next_look_ms=2**60)
    assert "550 no such user" in text(login("edda"), f"/alerts/notifications/{note.pk}")
    assert login("vera").post(f"/alerts/notifications/{note.pk}/retry").status_code == 403
    login("edda").post(f"/alerts/notifications/{note.pk}/retry")
    assert NotificationGroup.objects.get().blocked_until_ms == 0


def test_a_waiting_notification_is_tried_now(note: Notification, login: Callable[[str], Client]) -> None:
    Notification.objects.update(state="waiting", next_attempt_ms=2**60)
    login("edda").post(f"/alerts/notifications/{note.pk}/retry")
    assert Notification.objects.get().next_attempt_ms == 0


def test_a_test_is_delivered_as_all_notifications_are(
    note: Notification, world: AlertingWorld, login: Callable[[str], Client], mailoutbox: list[Any]
) -> None:
    receiver = Receiver.objects.get()
    answer = login("edda").post(f"/alerts/receivers/{receiver.pk}/test")
    world.tell()
    row = Notification.objects.exclude(pk=note.pk).get()
    assert answer["Location"] == f"/alerts/notifications/{row.pk}"
    assert (row.state, mailoutbox[-1].subject) == ("sent", "[TEST] Test by edda · Acme")


def test_an_admin_writes_and_deletes_a_contact_point(app: App, login: Callable[[str], Client]) -> None:
    form = {"name": "On call", "receivers": "a@example.org, b@example.org"}
    assert login("edda").post("/alerts/contact-points", form).status_code == 403
    login("olga").post("/alerts/contact-points", form)
    point = ContactPoint.objects.get()
    assert [each.target for each in point.receivers.all()] == ["a@example.org", "b@example.org"]
    login("olga").post("/alerts/contact-points", {**form, "receivers": "c@example.org"})
    assert [each.target for each in ContactPoint.objects.get().receivers.all()] == ["c@example.org"]
    assert (
        "is not a valid"
        in login("olga").post("/alerts/contact-points", {**form, "receivers": "nobody"}, follow=True).content.decode()
    )
    login("olga").post(f"/alerts/contact-points/{point.pk}/delete")
    assert not ContactPoint.objects.exists()


def test_a_silence_is_created_shown_and_ended(app: App, login: Callable[[str], Client]) -> None:
    form = {"matchers": 'host="web-1"', "duration_ms": "1h", "comment": "new disks"}
    assert login("vera").post("/alerts/silences", form).status_code == 403
    assert login("edda").post("/alerts/silences", form).status_code == 302
    silence = Silence.objects.get()
    assert silence.to_ms - silence.from_ms == 3_600_000
    assert "new disks" in text(login("vera"), "/alerts/silences")
    login("edda").post(f"/alerts/silences/{silence.pk}/end")
    silence.refresh_from_db()
    assert silence.to_ms - silence.from_ms < 3_600_000


def test_a_wrong_silence_says_what_is_wrong(app: App, login: Callable[[str], Client]) -> None:
    answer = login("edda").post("/alerts/silences", {"matchers": 'host=~".*"', "duration_ms": "1h"})
    assert "non-empty matcher" in answer.content.decode()
    assert not Silence.objects.exists()


def test_the_preview_says_which_alerts_a_silence_would_match(
    note: Notification, login: Callable[[str], Client]
) -> None:
    path = "/alerts/silences/preview?matchers="
    assert "Matches <strong>1</strong> open alert" in text(login("vera"), path + 'alertname="CPU is busy"')
    assert "Matches <strong>0</strong>" in text(login("vera"), path + 'host="b"')
    assert "Write matchers" in text(login("vera"), path)


@pytest.mark.parametrize("path", ["receivers/{receiver}/test", "notifications/{note}/retry", "silences/{silence}/end"])
def test_nobody_acts_on_what_belongs_to_another_organisation(
    note: Notification, foreign_app: App, login: Callable[[str], Client], path: str
) -> None:
    silence = Silence.objects.create(
        organisation=note.organisation, matchers='a="b"', from_ms=0, to_ms=2**60, created_ms=0
    )
    filled = path.format(receiver=Receiver.objects.get().pk, note=note.pk, silence=silence.pk)
    assert login("mallory").post(f"/alerts/{filled}").status_code == 404
    assert Notification.objects.count() == 1
