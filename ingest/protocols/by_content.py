"""Reads the bodies that agents send through RabbitMQ: line protocol, collectd's JSON, or SPM's own columns.

Senders rarely name the content type, and sometimes a wrong one, so the beginning of a body decides. Enter by ``parse``,
or by ``parse_many`` for the bodies of many agents; both have the errors of the protocols, ``BadMessage`` or
``LimitExceeded``. Pure: no Django.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from ingest.protocols.influx import joined
from ingest.protocols.influx import reader as influx
from ingest.protocols.influx.joined import BodyToParse
from ingest.protocols.registry import INFLUX, PROTOCOLS, Protocol
from ingest.routing import LINES_TYPE
from spm.wire import Parsed

log = logging.getLogger(__name__)


@dataclass(slots=True)
class QueuedBody:
    """One decoded body from the queue. The content type matters only for the precision of lines.

    ``over_quota``: the app has more series than its quota allows, so its names must not fill the common cache.
    """

    raw: bytes
    content_type: str
    over_quota: bool = False
    protocol: Protocol = field(init=False)

    def __post_init__(self) -> None:
        """Recognise the protocol by the beginning of the body, else line protocol, which has none of its own."""
        self.protocol = next((one for one in PROTOCOLS if one.recognises and one.recognises(self.raw)), INFLUX)

    @property
    def precision(self) -> str:
        """The precision of times in lines: SPM's agent sends ms, Telegraf the default of Influx."""
        return "ms" if self.content_type == LINES_TYPE else "ns"

    @property
    def unit(self) -> str:
        """The unit of its times as they were sent, for hints about times in the wrong unit."""
        return self.precision if self.protocol is INFLUX else self.protocol.unit


def parse(body: bytes, content_type: str, now_ms: int) -> Parsed:
    """Returns all samples of one body."""
    return _parse(QueuedBody(body, content_type), now_ms)


def parse_many(bodies: Sequence[QueuedBody], now_ms: int) -> list[Parsed | Exception]:
    """Returns for each body its samples, or its error; those of line protocol are read together."""
    lines = [
        BodyToParse(body.raw, now_ms, body.precision, body.over_quota) for body in bodies if body.protocol is INFLUX
    ]
    try:
        together = iter(joined.parse_many(lines))
    except Exception:  # a fault of ours: the bodies that did not cause it are read
        log.exception("%d bodies cannot be parsed together", len(lines))
        return [_result(body, now_ms) for body in bodies]
    return [next(together) if body.protocol is INFLUX else _result(body, now_ms) for body in bodies]


def _parse(body: QueuedBody, now_ms: int) -> Parsed:
    if body.protocol is not INFLUX:
        return body.protocol.parse(body.raw, now_ms=now_ms, over_quota=body.over_quota)
    return influx.parse(body.raw, now_ms=now_ms, precision=body.precision, over_quota=body.over_quota)


def _result(body: QueuedBody, now_ms: int) -> Parsed | Exception:
    try:
        return _parse(body, now_ms)
    except Exception as error:  # of one body: it becomes a dead letter, and the others are accepted
        return error
