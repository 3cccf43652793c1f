"""Writes events in the transaction of their cause, without a position: the relay gives it once they are committed.

``emit`` is for the product: events of one cause are written in their order, and an event whose id is there already is
the same event. ``post`` is for people and programs: it says whether the event is new, and fails rather than commit
late. Enter by either.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from django.db import IntegrityError, transaction

from spm.clock import Clock, random_u64
from spm.errors import LimitExceeded, Refused
from spm.events import limits
from spm.events.errors import TooSlow
from spm.events.models import Event

_BATCH_ROWS = 200  # of one statement: databases bound its parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """An event to be written. ``key``: events of one key are read in order; "" stands for its kind."""

    kind: str
    text: str
    at_ms: int
    event_id: str = ""
    key: str = ""
    end_ms: int | None = None
    link: str = ""
    body: dict[str, Any] = field(default_factory=dict)
    author: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """Whose event it is."""

    organisation: int
    app: int


def emit(place: Place, drafts: Sequence[Draft], *, now_ms: int) -> None:
    """Write events of one cause, in their order. Must run in the transaction of the cause."""
    assert transaction.get_connection().in_atomic_block, "BUG: events emitted outside the transaction of their cause"
    rows = [_row(place, draft, now_ms=now_ms, is_posted=False) for draft in drafts]
    Event.objects.bulk_create(rows, batch_size=_BATCH_ROWS, ignore_conflicts=True)


def post(place: Place, draft: Draft, clock: Clock, begun_s: float) -> tuple[Event, bool]:
    """Write an event of a person or program; return it, and whether it is new.

    The same id with the same content is the same event, so a request whose answer was lost may be repeated; with
    another content it raises ``Refused``. Raises ``TooSlow`` if too much time has passed since ``begun_s``.
    """
    _check_size(draft)
    row = _row(place, draft, now_ms=clock.now_ms(), is_posted=True)
    try:
        with transaction.atomic():
            row.save(force_insert=True)
            if clock.monotonic() - begun_s > limits.COMMIT_S_MAX:
                raise TooSlow("the event was not stored: the database took too long. Send it again with its id")
    except IntegrityError:
        present = Event.objects.filter(app=place.app, event_id=draft.event_id).first()
        if present is None:
            raise
        if _content(present) != _content(row):
            raise Refused(
                "another event has this id", got=draft.event_id, remedy="Give each event an id of its own."
            ) from None
        return present, False
    return row, True


def _row(place: Place, draft: Draft, *, now_ms: int, is_posted: bool) -> Event:
    return Event(
        organisation_id=place.organisation,
        app_id=place.app,
        event_id=draft.event_id or f"{random_u64():016x}{random_u64():016x}",
        kind=draft.kind[: limits.KIND_CHARS_MAX],
        key=(draft.key or draft.kind)[: limits.KEY_CHARS_MAX],
        text=draft.text[: limits.TEXT_CHARS_MAX],
        link=draft.link[: limits.LINK_CHARS_MAX],
        at_ms=draft.at_ms,
        end_ms=draft.end_ms,
        body=draft.body if _size(draft.body) <= limits.BODY_BYTES_MAX else {"left_out": "too long"},
        author=draft.author[: limits.AUTHOR_CHARS_MAX],
        is_posted=is_posted,
        made_ms=now_ms,
    )


def _content(event: Event) -> tuple[object, ...]:
    return event.kind, event.key, event.text, event.link, event.at_ms, event.end_ms, event.body


def _check_size(draft: Draft) -> None:
    size = _size(draft.body)
    if size > limits.BODY_BYTES_MAX:
        raise LimitExceeded(
            "the event's body is too long", got=f"{size} bytes", wanted=f"at most {limits.BODY_BYTES_MAX}"
        )


def _size(body: dict[str, Any]) -> int:
    return len(orjson.dumps(body))
