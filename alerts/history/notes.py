"""Notes that people write on an alert: events of the kind ``note`` whose key names the alert.

So they are in the stream and on charts, as all events are. Enter by ``add_note`` and ``notes_of``.
"""

from collections.abc import Collection, Mapping

from django.contrib.auth.models import User

from alerts.models import Episode
from spm.clock import Clock
from spm.errors import BadQuery
from spm.events import limits as event_limits
from spm.events import outbox, relay
from spm.events.models import Event
from spm.events.outbox import Draft, Place

KIND = "note"


def add_note(episode: Episode, text: str, *, by: User, clock: Clock) -> Event:
    """Write a note on an alert; raises ``BadQuery`` for an empty one or one that is too long."""
    text, begun_s = text.replace("\0", "").strip(), clock.monotonic()
    if not 0 < len(text) <= event_limits.TEXT_CHARS_MAX:
        raise BadQuery(f"a note has 1 to {event_limits.TEXT_CHARS_MAX} characters")
    app = episode.rule.app
    draft = Draft(
        kind=KIND,
        text=text,
        at_ms=clock.now_ms(),
        key=_key(episode.pk),
        body={"episode": episode.pk},
        author=by.get_username(),
    )
    event, _ = outbox.post(Place(app.organisation_id, app.pk), draft, clock, begun_s)
    relay.advance(app.organisation_id)
    return event


def notes_of(app: int, episodes: Collection[Episode], *, most: int) -> Mapping[int, list[Event]]:
    """Return the newest notes on alerts of an app, by alert, in order of time."""
    if not episodes:
        return {}
    since_ms = min(each.start_ms for each in episodes)
    rows = Event.objects.filter(app=app, kind=KIND, at_ms__gte=since_ms, key__startswith=_key(""))
    numbers = {_key(each.pk): each.pk for each in episodes}
    notes: dict[int, list[Event]] = {}
    for event in reversed(rows.order_by("-at_ms", "-pk")[:most]):
        if event.key in numbers:
            notes.setdefault(numbers[event.key], []).append(event)
    return notes


def _key(number: int | str) -> str:
    return f"alert {number}"
