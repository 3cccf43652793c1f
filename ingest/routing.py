"""What a sender to RabbitMQ must know, agents included: the exchange, the routing key of a source, names of headers.

Standard library only. Everything else about the broker is in ``ingest.transport.topology``. Enter by ``key_of`` and
``agent_key``.
"""

import hashlib
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from spm import limits
from spm.errors import Refused

EXCHANGE = "spm.metrics"
AGENTS = "spm.agents"  # the exchange of agents that the broker knows by their token: key = token id ‖ "." ‖ source
LINES_TYPE = "application/x-influx-line"  # content type of a body of line protocol without a stamp
KEY_BYTES_MAX = 255  # AMQP's own limit
TOKEN_HEADER, SOURCE_HEADER = "x-spm-token", "x-spm-source"
PERIOD_HEADER, SENDER_HEADER = "x-spm-period", "x-spm-sender"  # seconds between messages; the program that sends


AGENTS_OPTION, CA_OPTION = "agents", "ca"  # …?agents=1: agents publish by their tokens; …?ca=FILE: who signs its TLS
CALM_OPTION = "calm"  # …?calm=N: workers that consume while there is little to do


def option_of(url: str, name: str) -> str:
    """Return the value of one of these options of an AMQP address, or ""."""
    return dict(parse_qsl(urlsplit(url).query)).get(name, "")


def split_partitions(url: str) -> tuple[str, int]:
    """Return an AMQP address without our own options, and its ``partitions=N``; ``Refused`` for a wrong number."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    given = query.pop("partitions", str(limits.AMQP_PARTITIONS))
    for name in (AGENTS_OPTION, CA_OPTION, CALM_OPTION):
        query.pop(name, None)
    if not given.isdecimal() or not 1 <= int(given) <= limits.AMQP_PARTITIONS_MAX:
        raise Refused("wrong number of partitions", got=given, wanted=f"1 to {limits.AMQP_PARTITIONS_MAX}")
    return urlunsplit(parts._replace(query=urlencode(query))), int(given)


def agent_key(token_id: str, source: str) -> str:
    """Return the routing key under which an agent publishes to ``AGENTS``; a very long source is cut."""
    return f"{token_id}.{source}".encode()[:KEY_BYTES_MAX].decode("utf-8", "ignore")


def split_agent_key(key: str) -> tuple[str, str]:
    """Return (token id, source or "") of such a key."""
    token_id, _, source = key.partition(".")
    return token_id, source


def key_of(sender: bytes, partitions: int) -> str:
    """Return the routing key of all messages of one sender: they share a queue, and so stay in order."""
    digest = hashlib.blake2b(sender, digest_size=4).digest()
    return partition_key(int.from_bytes(digest, "big") % partitions)


def partition_key(number: int) -> str:
    """Return the routing key of a partition."""
    return f"{number:03d}"
