"""A notifier is one class and one line of the registry."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from alerts.models import Rule
from alerts.models.telling import Notification
from alerts.notify import registry
from alerts.notify.base import RenderedMessage
from alerts.notify.wording import subject
from alerts.telling import limits
from spm.accounts.models import App
from tests.alerts.conftest import AlertingWorld

pytestmark = pytest.mark.django_db


class PagerNotifier:
    """Records what it would page."""

    receiver_hint = "pager number"

    def __init__(self) -> None:
        self.pages: list[tuple[str, list[str], str]] = []

    def accepts(self, receiver: str) -> bool:
        return receiver.startswith("pager:")

    def render(self, key: str, payload: Mapping[str, Any]) -> RenderedMessage:
        return RenderedMessage(subject(payload), payload["receivers"], (), "Beep.")

    def shown(self, receiver: str) -> str:
        return receiver

    def send(self, key: str, payload: Mapping[str, Any]) -> str:
        self.pages.append((key, payload["receivers"], subject(payload)))
        return "beeped"


@pytest.fixture
def pager(monkeypatch: pytest.MonkeyPatch) -> PagerNotifier:
    notifier = PagerNotifier()
    monkeypatch.setitem(registry.NOTIFIERS, "pager", notifier)  # the one line
    return notifier


@pytest.fixture
def editor(people: dict[str, User]) -> Client:
    client = Client()
    client.force_login(people["edda"])
    return client


def test_a_new_notifier_delivers_an_alert(
    make_rule: Callable[..., Rule], world: AlertingWorld, pager: PagerNotifier, mailoutbox: list[Any]
) -> None:
    make_rule(receivers=("pager:17", "ops@example.org"))
    world.evaluate_values(95)
    world.clock.advance(limits.GROUP_WAIT_MS)
    assert world.tell() == 2
    ((_, receivers, text),) = pager.pages
    assert (receivers, text) == (["pager:17"], "[FIRING] CPU is busy: a 95 (> 90) · Shop")
    assert [mail.to for mail in mailoutbox] == [["ops@example.org"]]


def test_the_form_accepts_receivers_of_a_new_notifier(
    app: App, editor: Client, pager: PagerNotifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("alerts.pages.editor.views.query_engine", lambda app, expr, at_ms: [])
    form = {"name": "Disk", "expr": "disk", "comparator": ">", "threshold": "95", "severity": "critical"}
    editor.post(f"/alerts/new?app={app.pk}", {**form, "receivers": "pager:17"})
    assert Rule.objects.get().receivers == ["pager:17"]
    refusal = editor.post(f"/alerts/new?app={app.pk}", {**form, "receivers": "nobody"})
    assert "is not a valid" in refusal.content.decode()
    assert "pager number" in refusal.content.decode()


def test_the_pages_show_notifications_of_a_new_notifier(
    make_rule: Callable[..., Rule], world: AlertingWorld, pager: PagerNotifier, editor: Client
) -> None:
    make_rule(receivers=("pager:17",))
    world.evaluate_values(95)
    world.clock.advance(limits.GROUP_WAIT_MS)
    world.tell()
    page = editor.get(f"/alerts/notifications/{Notification.objects.get().pk}").content.decode()
    assert "[FIRING] CPU is busy: a 95 (&gt; 90) · Shop" in page
    assert "Beep." in page


def test_receivers_that_no_notifier_accepts_fail_visibly(make_rule: Callable[..., Rule], world: AlertingWorld) -> None:
    make_rule(receivers=("nobody",))
    world.evaluate_values(95)
    world.clock.advance(limits.GROUP_WAIT_MS)
    world.tell()
    row = Notification.objects.get()
    assert (row.receiver.kind, row.state, row.answer) == ("mail", "dead", "no receiver with a mail address")
