"""What a sender to RabbitMQ must know, agents included: the exchange, the routing key of a source, names of headers.

Standard library only. Everything else about the broker stands in ``ingest.transport.topology``.
"""

import hashlib
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from spm import limits
from spm.errors import Refused

EXCHANGE = "spm.metrics"
LINES_TYPE = "application/x-influx-line"  # content type of a body of line protocol that nobody has stamped yet
TOKEN_HEADER, SOURCE_HEADER = "x-spm-token", "x-spm-source"


def split_partitions(url: str) -> tuple[str, int]:
    """An AMQP address without its ``?partitions=N``, and the number; raises ``Refused`` for a wrong one."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    given = query.pop("partitions", str(limits.AMQP_PARTITIONS))
    if not given.isdecimal() or not 1 <= int(given) <= limits.AMQP_PARTITIONS_MAX:
        raise Refused("wrong number of partitions", got=given, wanted=f"1 to {limits.AMQP_PARTITIONS_MAX}")
    return urlunsplit(parts._replace(query=urlencode(query))), int(given)


def key_of(sender: bytes, partitions: int) -> str:
    """The routing key of everything one sender sends: its messages share a queue, and so stay in order."""
    digest = hashlib.blake2b(sender, digest_size=4).digest()
    return partition_key(int.from_bytes(digest, "big") % partitions)


def partition_key(number: int) -> str:
    """The routing key of a partition."""
    return f"{number:03d}"
