"""The ring of recent rejections of each app. ``write_rejections`` writes it, for the process's note writer.

``by_reason`` sums the rejections of an app up for people. The ring has room for ``REJECTIONS_KEPT_MAX``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db import models

from ingest.models import RejectedLine
from spm.accounts.bulk import execute_many
from spm.limits import REJECTION_EXAMPLE_CHARS_MAX, REJECTION_REASONS_SHOWN, REJECTIONS_KEPT_MAX
from spm.wire import Rejection

_ADD = """
INSERT INTO ingest_rejectedline (app_id, time_ms, source, way, line, reason, example)
VALUES (%s, %s, %s, %s, %s, %s, %s)
"""
_DELETE_OLDER = """
DELETE FROM ingest_rejectedline WHERE app_id = %s AND id < (
    SELECT id FROM ingest_rejectedline WHERE app_id = %s ORDER BY id DESC LIMIT 1 OFFSET %s
)
"""


@dataclass(frozen=True, slots=True)
class RejectionNote:
    """A rejection with its time, and the source and way of its message."""

    time_ms: int
    source: str
    way: str
    rejection: Rejection


def write_rejections(notes: Mapping[int, Mapping[int, RejectionNote]]) -> None:
    """Add rejections, by app and in their order, as the newest of their ring; within a transaction."""
    execute_many(_ADD, [_row(app, note) for app, ordered in sorted(notes.items()) for note in ordered.values()])
    execute_many(_DELETE_OLDER, [(app, app, REJECTIONS_KEPT_MAX - 1) for app in sorted(notes)])


def newer_rejection(before: RejectionNote, later: RejectionNote) -> RejectionNote:
    """Return the later of two notes with one number."""
    return later


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


def _row(app: int, note: RejectionNote) -> tuple[Any, ...]:
    one = note.rejection
    reason, example = (text.replace("\0", "\ufffd") for text in (one.reason, one.example))  # PostgreSQL takes no NUL
    example = example[:REJECTION_EXAMPLE_CHARS_MAX]
    return app, note.time_ms, note.source, note.way, one.line, reason[:300], example
