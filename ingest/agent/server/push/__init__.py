"""Sends messages to the server: one ``Push`` for HTTP, one for AMQP; the scheme of the address decides.

Enter by ``open_push``. A push returns an ``Outcome`` and never raises for a failure of network or server. pika is
loaded only for amqp:// addresses.
"""

from urllib.parse import urlsplit

from ingest.agent.server.connector import ServerConnector, Tls
from ingest.agent.server.push.amqp import AmqpPush
from ingest.agent.server.push.base import Push
from ingest.agent.server.push.http import HttpPush
from spm.errors import Refused


def open_push(
    url: str, *, token: str, source: str, period_ms: int = 0, tls: Tls | None = None, proxy: str = ""
) -> Push:
    """Returns the push for this address. It connects at the first message."""
    scheme = urlsplit(url).scheme
    if scheme in ("http", "https"):
        connector = ServerConnector(url, tls=tls, proxy=proxy)
        return HttpPush(connector, token=token, source=source, period_ms=period_ms)
    if scheme in ("amqp", "amqps"):
        return AmqpPush(url, token=token, source=source, period_ms=period_ms)
    raise Refused("cannot push to this address", got=url, wanted="http://, https://, amqp:// or amqps://")
