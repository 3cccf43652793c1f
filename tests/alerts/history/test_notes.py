"""Which events are notes on an alert, and in which order they come."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User

from alerts.history.notes import add_note, notes_of
from alerts.models import Episode, Rule
from spm.accounts.models import App
from spm.clock import FakeClock
from spm.events.models import Event
from tests.alerts.conftest import START_MS, AlertingWorld
from tests.alerts.noise.past import alert

pytestmark = pytest.mark.django_db


@pytest.fixture
def fired(make_rule: Callable[..., Rule], world: AlertingWorld) -> Episode:
    return alert(make_rule(), START_MS)


def texts(app: App, fired: Episode, most: int = 10) -> list[str]:
    return [note.text for note in notes_of(app.pk, [fired], most=most).get(fired.pk, ())]


def test_notes_come_in_order_of_time_of_many_the_newest(app: App, fired: Episode, people: dict[str, User]) -> None:
    for number in range(3):
        add_note(fired, f"note {number}", by=people["edda"], clock=FakeClock(START_MS + number))
    assert texts(app, fired) == ["note 0", "note 1", "note 2"]
    assert texts(app, fired, most=2) == ["note 1", "note 2"]
    assert Event.objects.filter(kind="note", author="edda").count() == 3


def test_events_of_other_kinds_and_apps_are_no_notes(app: App, fired: Episode) -> None:
    other = App.objects.create(organisation=app.organisation, name="Other")
    for kind, place in (("deploy", app), ("note", other)):
        Event.objects.create(
            organisation=app.organisation, app=place, event_id=kind, kind=kind, text=kind, key=f"alert {fired.pk}",
            at_ms=START_MS, made_ms=START_MS, is_posted=True,
        )  # fmt: skip
    assert texts(app, fired) == []
