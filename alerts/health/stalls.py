"""Says from outside of judges and senders whether alerting stands still.

What watches alerts cannot report that it stopped, so others ask: those who open ``/health/alerting``, and ``manage.py
alerting_health``, which a timer of the system runs. It only reads.

| stall | what is late |
|---|---|
| judging | a lane with something to judge has not moved for longer than it may wait |
| pipeline | what was accepted is not known, so that absences are not judged |
| telling | notifications, or mails about accounts, that are due |
| events | the relay has given committed events no place in their stream |

Enter by ``stalls``.
"""

from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Exists, Min, OuterRef, Q, QuerySet
from django.db.models.functions import Greatest

from alerts.judging.limits import PIPELINE_MAX_MS
from alerts.models import Delivery, Instance, Lane, Outbox, Rule
from alerts.models.telling import Notification
from spm.events.models import Event
from spm.limits import RULE_PERIOD_MS

STALL_MS = 2 * 60_000  # so late is no burst any more
HEADLINE = "Alerting stands still"


@dataclass(frozen=True, slots=True)
class Stall:
    """One part of alerting that stands still, since when, and how many lanes or messages wait."""

    what: str
    since_ms: int
    count: int

    def text(self, now_ms: int) -> str:
        """Return what people read."""
        late_s = (now_ms - self.since_ms) // 1_000
        return f"{self.what}: {self.count} waiting, the oldest for {late_s} s"


def stalls(now_ms: int) -> list[Stall]:
    """Return what stands still now; nothing of it names a tenant."""
    rules = Rule.objects.filter(app=OuterRef("app"), enabled=True, deleted_ms=None)
    lanes = Lane.objects.filter(
        Exists(rules) | Exists(Instance.objects.filter(rule__app=OuterRef("app"))), app__going=None
    )
    late_ms, due = now_ms - STALL_MS, Greatest("created_ms", "next_attempt_ms")
    unclaimed = Q(claim_until_ms__lte=now_ms)
    waiting = [
        rows.filter(unclaimed, state=Delivery.WAITING).annotate(due_ms=due).filter(due_ms__lte=late_ms)
        for rows in (Notification.objects.all(), Outbox.objects.all())
    ]
    judged_late = lanes.filter(position_ms__lt=late_ms - PIPELINE_MAX_MS - RULE_PERIOD_MS)
    late = [
        ("judging", judged_late, "position_ms"),
        ("pipeline", lanes.filter(behind_ms__lt=late_ms), "behind_ms"),
        *(("telling", rows, "due_ms") for rows in waiting),
        ("events", Event.objects.filter(position=None, made_ms__lte=late_ms), "made_ms"),
    ]
    return [_stall(what, rows, column) for what, rows, column in late if rows.exists()]


def _stall(what: str, rows: QuerySet[Any], column: str) -> Stall:
    facts = rows.aggregate(since_ms=Min(column), count=Count("pk"))
    return Stall(what, facts["since_ms"] or 0, facts["count"])
