"""The ring of recent rejections of each app. Enter by ``record_rejections``; ``by_reason`` sums them up for people.

A broken sender may cause a thousand rejections a second. Beyond a few writes per app and ten seconds a process drops
the texts; the counts are in every answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from django.db import models

from ingest.accept.write_throttle import WriteThrottle
from ingest.models import RejectedLine
from spm.limits import REJECTION_EXAMPLE_CHARS_MAX, REJECTION_REASONS_SHOWN, REJECTIONS_KEPT_MAX
from spm.wire import Rejection

_throttle = WriteThrottle()


def record_rejections(app_id: int, source: str, rejections: Sequence[Rejection], now_ms: int, way: str = "") -> bool:
    """Store these as the app's newest rejections; return False if the throttle drops them."""
    if not rejections or not _throttle.allows(app_id, now_ms):
        return False
    RejectedLine.objects.bulk_create(_row(app_id, source, way, one, now_ms) for one in rejections)
    own = RejectedLine.objects.filter(app_id=app_id).order_by("-id")
    oldest = own.values_list("id", flat=True)[REJECTIONS_KEPT_MAX - 1 : REJECTIONS_KEPT_MAX].first()
    if oldest is not None:
        own.filter(id__lt=oldest).delete()
    return True


def _row(app_id: int, source: str, way: str, one: Rejection, now_ms: int) -> RejectedLine:
    example = one.example.replace("\0", "\ufffd")[:REJECTION_EXAMPLE_CHARS_MAX]  # PostgreSQL takes no NUL in text
    return RejectedLine(
        app_id=app_id, time_ms=now_ms, source=source, way=way, line=one.line, reason=one.reason[:300], example=example
    )


@dataclass(frozen=True, slots=True)
class ReasonCount:
    """How many of the stored rejections have one reason, and the newest of them."""

    reason: str
    count: int
    last_ms: int
    sources: int
    example: str


def by_reason(app_id: int) -> list[ReasonCount]:
    """Return the reasons of the app's stored rejections, the most frequent first."""
    own = RejectedLine.objects.filter(app_id=app_id).order_by()
    totals = own.values("reason").annotate(
        n=models.Count("id"),
        last=models.Max("time_ms"),
        senders=models.Count("source", distinct=True),
        newest=models.Max("id"),
    )
    rows = sorted(totals, key=lambda row: (-row["n"], row["reason"]))[:REJECTION_REASONS_SHOWN]
    examples = dict(own.filter(pk__in=[row["newest"] for row in rows]).values_list("pk", "example"))
    return [ReasonCount(r["reason"], r["n"], r["last"], r["senders"], examples.get(r["newest"], "")) for r in rows]
