"""Records in the database what people see of a message: its source, its way of arrival, rejections, descriptions.

Enter by ``record_accepted`` and ``record_rejected_body``. Both only log a database error: the message is durable by
then, and a failing database must not make it look lost.
"""

import logging

from django.db import DatabaseError

from ingest.accept import arrivals, descriptions, rejections
from ingest.accept.identity import Sender
from spm import telemetry
from spm.accounts import sources
from spm.errors import Explained
from spm.wire import Parsed, Rejection

_LOG = logging.getLogger(__name__)


def record_accepted(parsed: Parsed, sender: Sender, now_ms: int) -> None:
    """Record a message that was accepted, in whole or in part."""
    telemetry.REJECTED_LINES.inc(parsed.rejected)
    try:
        if len(parsed.ts):
            sources.note_seen(sender.app_id, sender.source, now_ms, period_ms=sender.period_ms)
            arrivals.record_arrival(sender.app_id, sender.way, sender.source, now_ms)
        rejections.record_rejections(sender.app_id, sender.source, parsed.rejections, now_ms, sender.way)
        descriptions.record_descriptions(sender.app_id, parsed.metadata)
    except DatabaseError:
        _LOG.exception("could not record a message of app %s", sender.app_id)


def record_rejected_body(error: Explained, sender: Sender, now_ms: int) -> None:
    """Record a body that was rejected as a whole, as one rejection."""
    telemetry.REJECTED_LINES.inc()
    rejection = Rejection(0, str(error)[:300], "")
    try:
        rejections.record_rejections(sender.app_id, sender.source, [rejection], now_ms, sender.way)
    except DatabaseError:
        _LOG.exception("could not record a rejected body of app %s", sender.app_id)
