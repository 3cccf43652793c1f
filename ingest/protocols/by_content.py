"""Reads the bodies that agents send through RabbitMQ: line protocol, collectd's JSON, or SPM's own columns.

Senders rarely name the content type, and sometimes a wrong one, so the beginning of a body decides. Enter by ``parse``;
it raises ``BadMessage`` or ``LimitExceeded`` as the protocols do. Pure: no Django.
"""

from ingest.protocols.influx import reader as influx
from ingest.protocols.registry import INFLUX, PROTOCOLS, Protocol
from ingest.routing import LINES_TYPE
from spm.wire import Parsed


def parse(body: bytes, content_type: str, now_ms: int) -> Parsed:
    """Parses a body by the protocol of its beginning. The content type matters only for the precision of lines."""
    recognised = _recognise(body)
    if recognised is not INFLUX:
        return recognised.parse(body, now_ms=now_ms)
    precision = "ms" if content_type == LINES_TYPE else "ns"  # SPM's agent sends ms, Telegraf the default of Influx
    return influx.parse(body, now_ms=now_ms, precision=precision)


def protocol(body: bytes) -> str:
    """Returns the name of a body's protocol; ``columns`` is SPM's own."""
    return _recognise(body).name


def _recognise(body: bytes) -> Protocol:
    """Returns the protocol that recognises the body, else line protocol, which has no beginning of its own."""
    return next((one for one in PROTOCOLS if one.recognises is not None and one.recognises(body)), INFLUX)
