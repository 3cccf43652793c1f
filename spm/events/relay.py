"""Gives events their positions: per organisation 1, 2, 3 …, in the order in which the relay sees them committed.

Numbers of rows become visible out of order, since a transaction gets them before it commits; a reader that goes by them
skips what commits late. So a position is given afterwards, by any number of relays at once:

1. Lock the organisation's head.
2. Number the oldest events that are visible and have no position, from the head on, in the order of their rows.
3. Move the head, and commit.

A second relay waits in step 1 and then sees what the first one has done. A relay that is killed anywhere has done all
or nothing. Positions become visible in their order, without holes, because they are given under the lock. Enter by
``advance`` and ``advance_all``.
"""

from collections.abc import Callable

from django.db import connection, transaction
from django.db.models import F

from spm.events import limits
from spm.events.models import Event, StreamHead

CrashPoint = Callable[[str], None]
_NUMBER = """
UPDATE events_event SET position = numbered.position FROM (
    SELECT id, CAST(%s AS BIGINT) + ROW_NUMBER() OVER (ORDER BY id) AS position FROM (
        SELECT id FROM events_event WHERE organisation_id = %s AND position IS NULL ORDER BY id LIMIT %s
    ) AS oldest
) AS numbered WHERE events_event.id = numbered.id
"""


def advance(organisation: int, *, crash_point: CrashPoint = lambda _: None) -> int:
    """Give positions to the events of an organisation that wait for one; return how many got one."""
    total = 0
    for _ in range(limits.RELAY_ROUNDS_MAX):
        if not Event.objects.filter(organisation=organisation, position=None).exists():
            break
        crash_point("before the head is locked")
        count = _advance_some(organisation, crash_point)
        crash_point("after the commit")
        total += count
        if count < limits.RELAY_ROWS_MAX:
            break
    return total


def advance_all() -> int:
    """Give positions to all events that wait for one; return how many got one."""
    waiting = Event.objects.filter(position=None).order_by("organisation").values_list("organisation", flat=True)
    return sum(advance(organisation) for organisation in waiting.distinct())


def _advance_some(organisation: int, crash_point: CrashPoint) -> int:
    with transaction.atomic():
        StreamHead.objects.bulk_create([StreamHead(organisation_id=organisation)], ignore_conflicts=True)
        head = StreamHead.objects.select_for_update().get(organisation=organisation)
        crash_point("while the head is locked")
        with connection.cursor() as cursor:
            cursor.execute(_NUMBER, [head.position, organisation, limits.RELAY_ROWS_MAX])
            count: int = cursor.rowcount
        crash_point("after events were numbered")
        StreamHead.objects.filter(organisation=organisation).update(position=F("position") + count)
        crash_point("before the commit")
    return count
