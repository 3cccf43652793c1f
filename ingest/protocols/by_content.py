"""Reads the bodies that agents send through RabbitMQ: line protocol, collectd's JSON, or our own columns.

Senders name the content type seldom and not always truly, so a body's beginning decides. Enter by ``parse``; it raises
``BadMessage`` or ``LimitExceeded`` as the protocols do. Pure: no Django.
"""

from ingest.protocols.influx import reader as influx
from ingest.protocols.registry import INFLUX, PROTOCOLS, Protocol
from ingest.routing import LINES_TYPE
from spm.wire import Parsed


def parse(body: bytes, content_type: str, now_ms: int) -> Parsed:
    """Parses a body by the protocol that its beginning shows; the content type only tells the precision of lines."""
    recognised = _recognise(body)
    if recognised is not INFLUX:
        return recognised.parse(body, now_ms=now_ms)
    precision = "ms" if content_type == LINES_TYPE else "ns"  # our agent says ms; Telegraf writes what Influx does
    return influx.parse(body, now_ms=now_ms, precision=precision)


def protocol(body: bytes) -> str:
    """Names the protocol of a body; ``columns`` are our own."""
    return _recognise(body).name


def _recognise(body: bytes) -> Protocol:
    """Returns the protocol that recognises the body; all others are line protocol, which has no beginning of its own."""
    return next((one for one in PROTOCOLS if one.recognises is not None and one.recognises(body)), INFLUX)
