"""An organisation with an app, and events of it."""

from collections.abc import Callable

import pytest
from django.db import transaction

from spm.accounts.models import App, Organisation
from spm.events import outbox, relay
from spm.events.outbox import Draft, Place

Emit = Callable[..., None]
NOW_MS = 1_800_000_000_000


def place_of(name: str) -> Place:
    """An app in an organisation of its own."""
    app = App.objects.create(organisation=Organisation.objects.create(name=name), name=name)
    return Place(app.organisation_id, app.pk)


@pytest.fixture
def place(db: None) -> Place:
    """The app whose events a test writes and reads."""
    return place_of("one")


@pytest.fixture
def emit(place: Place) -> Emit:
    """Commits an event of each text, in one transaction, and relays them."""

    def write(*texts: str, key: str = "", kind: str = "note", relayed: bool = True) -> None:
        with transaction.atomic():
            drafts = [Draft(kind=kind, text=text, at_ms=NOW_MS, key=key or text) for text in texts]
            outbox.emit(place, drafts, now_ms=NOW_MS)
        if relayed:
            relay.advance(place.organisation)

    return write
