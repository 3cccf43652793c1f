"""What agents send through RabbitMQ: line protocol, collectd's JSON, or our own columns, told apart by how they begin.

Pure: bytes in, ``Parsed`` out; raises ``BadMessage`` or ``LimitExceeded`` as the protocols do.
"""

from ingest.protocols import columns as protocols_columns
from ingest.protocols.influx import reader as influx_reader
from ingest.protocols.json import collectd
from ingest.routing import LINES_TYPE
from spm.wire import Parsed


def parse(body: bytes, content_type: str, now_ms: int) -> Parsed:
    """By what the body is: senders say little and not always the truth about it."""
    spoken = protocol(body)
    if spoken == "columns":
        return protocols_columns.parse(body, now_ms=now_ms)
    if spoken == "collectd":
        return collectd.parse(body, now_ms=now_ms)
    precision = "ms" if content_type == LINES_TYPE else "ns"  # our agent says ms; Telegraf writes what Influx does
    return influx_reader.parse(body, now_ms=now_ms, precision=precision)


def protocol(body: bytes) -> str:
    """Its name: ``columns`` are our own."""
    if body.startswith(protocols_columns.MAGIC):
        return "columns"
    return "collectd" if body[:64].lstrip().startswith(b"[") else "influx"
