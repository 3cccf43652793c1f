"""Pushes through RabbitMQ: one persistent message each, taken when a quorum queue has confirmed it.

The exchange and its queues are the server's to make: where they are missing, messages wait in the spool. Where the
address names the token's id as user (and the token as password), the broker vouches for the sender; else the token
travels in a header, and whoever may read the queue may read it. pika is loaded here, by name, when needed.
"""

import importlib
import logging
import ssl
from typing import Any

from ingest import routing
from ingest.agent.push.base import Outcome, Verdict
from ingest.agent.records import Message
from spm import limits

_PERSISTENT = 2
logging.getLogger("pika").setLevel(logging.CRITICAL)  # twenty lines per lost connection; an outcome says it in one


class AmqpPush:
    """One broker, one channel with confirms, one message at a time."""

    def __init__(self, url: str, *, token: str, source: str) -> None:
        self._pika: Any = importlib.import_module("pika")
        address, partitions = routing.split_partitions(url)
        self._parameters = self._pika.URLParameters(address)
        if address.startswith("amqps:"):
            context = ssl.create_default_context(cafile=routing.option_of(url, routing.CA_OPTION) or None)
            self._parameters.ssl_options = self._pika.SSLOptions(context, self._parameters.host)
        self._parameters.socket_timeout = self._parameters.stack_timeout = limits.AGENT_TIMEOUT_S
        self._parameters.blocked_connection_timeout = limits.AGENT_TIMEOUT_S
        self._parameters.heartbeat = 0  # between two looks nobody would answer; a dead connection shows when used
        user = self._parameters.credentials.username
        self._headers = {routing.SOURCE_HEADER: source}
        if token.startswith(f"{user}_"):  # the broker knows us by our token
            self._exchange, self._key = routing.AGENTS, routing.agent_key(user, source)
        else:
            self._exchange, self._key = routing.EXCHANGE, routing.key_of(source.encode(), partitions)
            self._headers[routing.TOKEN_HEADER] = token
        self._channel: Any = None

    def send(self, message: Message) -> Outcome:
        kept = self._channel is not None
        try:
            self._publish(message)
            return Outcome(Verdict.TAKEN)
        except (self._pika.exceptions.UnroutableError, self._pika.exceptions.NackError) as error:
            return Outcome(Verdict.LATER, f"the broker has no room or no queue: {error!r}")
        except (self._pika.exceptions.AMQPError, OSError) as error:
            self.close()
            if not kept:
                return Outcome(Verdict.LATER, f"{type(error).__name__}: {error}")
        return self.send(message)

    def announce(self, period_ms: int) -> None:
        """The broker is not the server: heartbeats tell it."""

    def close(self) -> None:
        channel, self._channel = self._channel, None
        if channel is None:
            return
        try:
            channel.connection.close()
        except (self._pika.exceptions.AMQPError, OSError):
            return  # it was gone already

    def _publish(self, message: Message) -> None:
        if self._channel is None:
            channel = self._pika.BlockingConnection(self._parameters).channel()
            channel.confirm_delivery()
            self._channel = channel
        properties = self._pika.BasicProperties(
            content_type=routing.LINES_TYPE,
            content_encoding="gzip",
            delivery_mode=_PERSISTENT,
            message_id=message.message_id.hex(),
            headers=self._headers,
        )
        self._channel.basic_publish(self._exchange, self._key, message.body, properties, mandatory=True)
