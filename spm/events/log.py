"""Reads the events of an app after a position of its organisation's stream, and deletes those past their retention.

Reading needs no lock: positions become visible in their order. Where events after the position have been deleted,
``PositionGone`` is raised: no gap is passed over. Enter by ``read``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from django.db import transaction

from spm.errors import BadQuery
from spm.events import limits
from spm.events.errors import PositionGone
from spm.events.models import Event, StreamHead


@dataclass(frozen=True, slots=True)
class Page:
    """Events in the order of their positions, and the position from which the reader goes on."""

    events: tuple[Event, ...]
    through: int


def head_of(organisation: int) -> StreamHead:
    """Return the head of a stream; one without events begins at 0."""
    return StreamHead.objects.filter(organisation=organisation).first() or StreamHead(organisation_id=organisation)


def position_of(organisation: int, text: str) -> int:
    """Return the position that a reader names: a number, ``oldest`` or ``newest``. Raises ``BadQuery``."""
    if text in ("oldest", "newest"):
        head = head_of(organisation)
        return head.oldest if text == "oldest" else head.position
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise BadQuery(f"stream_position={text[:20]!r} is neither a position (0, 1, …) nor oldest or newest")
    return int(text)


def read(
    organisation: int, app: int, after: int, *, kinds: Sequence[str] = (), count: int = limits.PAGE_EVENTS_MAX
) -> Page:
    """Return the next events of an app after a position. Raises ``PositionGone`` or ``BadQuery``."""
    head = head_of(organisation).position  # before the events: all up to here are visible
    if after > head:
        raise BadQuery(f"position {after} is ahead of the newest event, {head}: it is not of this stream")
    events = Event.objects.filter(app=app, position__gt=after).order_by("position")
    if kinds:
        events = events.filter(kind__in=kinds)
    page = tuple(events[:count])
    oldest = head_of(organisation).oldest  # after the events: what was deleted meanwhile is noticed
    if after < oldest:
        raise PositionGone(after, oldest)
    if len(page) == count:
        return Page(page, _position(page[-1]))
    return Page(page, max(head, _position(page[-1]) if page else 0))


def as_json(event: Event) -> dict[str, Any]:
    """Return an event as readers get it."""
    return {
        "stream_position": event.position,
        "id": event.event_id,
        "app": event.app_id,
        "kind": event.kind,
        "key": event.key,
        "text": event.text,
        "at_ms": event.at_ms,
        "end_ms": event.end_ms,
        "link": event.link,
        "author": event.author,
        "body": event.body,
    }


def prune(now_ms: int, *, keep_ms: int = limits.KEEP_MS, kept_max: int = limits.KEPT_MAX) -> int:
    """Delete the oldest events of each stream past their retention, a bounded number; return how many."""
    return sum(_prune_stream(head, now_ms - keep_ms, kept_max) for head in StreamHead.objects.all())


def _prune_stream(head: StreamHead, until_ms: int, kept_max: int) -> int:
    """Delete a prefix of the stream: what is left has no gap, and its first position is known."""
    events = Event.objects.filter(organisation=head.organisation_id, position__gt=head.oldest)
    oldest = events.order_by("position").values_list("position", "made_ms")[: limits.PRUNE_ROWS_MAX]
    over = [
        each
        for each, _ in takewhile(lambda row: row[1] < until_ms or (row[0] or 0) <= head.position - kept_max, oldest)
    ]
    if not over:
        return 0
    with transaction.atomic():
        StreamHead.objects.filter(organisation=head.organisation_id, oldest__lt=over[-1]).update(oldest=over[-1])
        return Event.objects.filter(organisation=head.organisation_id, position__lte=over[-1]).delete()[0]


def _position(event: Event) -> int:
    assert event.position is not None, "BUG: an event was read that has no position"
    return event.position
