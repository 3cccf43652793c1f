"""Getting a message to the server: one ``Push`` for HTTP, one for AMQP, chosen by the address.

A push answers with an ``Outcome`` and never raises for anything the network or the server may do. ``open_push`` is the
way in; pika is only loaded for amqp:// addresses.
"""

import importlib
from collections.abc import Callable
from typing import cast
from urllib.parse import urlsplit

from ingest.agent.server.push.base import Push
from ingest.agent.server.push.http import HttpPush
from ingest.agent.server.web import Tls, Web
from spm.errors import Refused


def open_push(
    url: str, *, token: str, source: str, period_ms: int = 0, tls: Tls | None = None, proxy: str = ""
) -> Push:
    """The push for this address; nothing is connected yet."""
    scheme = urlsplit(url).scheme
    if scheme in ("http", "https"):
        web = Web(url, tls=tls, proxy=proxy)
        return HttpPush(web, token=token, source=source, period_ms=period_ms)
    if scheme in ("amqp", "amqps"):
        module = importlib.import_module("ingest.agent.server.push.amqp")
        make = cast(Callable[..., Push], module.AmqpPush)
        return make(url, token=token, source=source, period_ms=period_ms)
    raise Refused("cannot push to this address", got=url, wanted="http://, https://, amqp:// or amqps://")
