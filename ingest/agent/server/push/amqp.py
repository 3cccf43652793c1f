"""Pushes through RabbitMQ: one persistent message each, accepted when a quorum queue has confirmed it.

The server creates the exchange and the queues; until then, messages wait in the spool. If the address has the token's
id as user (and the token as password), the broker verifies the sender. Otherwise the token is in a header, and everyone
who can read the queue can read the token. pika is imported only when an ``AmqpPush`` is made.
"""

import importlib
import logging
import ssl
from typing import Any

from ingest import routing
from ingest.agent.server.push.base import Outcome, Verdict
from ingest.agent.spool.records import Message
from ingest.agent.version import USER_AGENT
from spm import limits
from spm.errors import Refused

_PERSISTENT = 2
logging.getLogger("pika").setLevel(logging.CRITICAL)  # it logs twenty lines per lost connection; an outcome has one


class AmqpPush:
    """Sends one message at a time on one channel with publisher confirms."""

    def __init__(self, url: str, *, token: str, source: str, period_ms: int = 0) -> None:
        self._pika: Any = _import_pika()
        address, partitions = routing.split_partitions(url)
        self._parameters = self._pika.URLParameters(address)
        if address.startswith("amqps:"):
            context = ssl.create_default_context(cafile=routing.option_of(url, routing.CA_OPTION) or None)
            self._parameters.ssl_options = self._pika.SSLOptions(context, self._parameters.host)
        self._parameters.socket_timeout = self._parameters.stack_timeout = limits.AGENT_TIMEOUT_S
        self._parameters.blocked_connection_timeout = limits.AGENT_TIMEOUT_S
        self._parameters.heartbeat = 0  # between two pushes nothing would answer; a dead connection shows when used
        user = self._parameters.credentials.username
        self._headers = {routing.SOURCE_HEADER: source, routing.SENDER_HEADER: USER_AGENT}
        self.set_period(period_ms)
        if token.startswith(f"{user}_"):  # the broker authenticates the token
            self._exchange, self._key = routing.AGENTS, routing.agent_key(user, source)
        else:
            self._exchange, self._key = routing.EXCHANGE, routing.key_of(source.encode(), partitions)
            self._headers[routing.TOKEN_HEADER] = token
        self._channel: Any = None

    def send(self, message: Message) -> Outcome:
        was_open = self._channel is not None
        try:
            self._publish(message)
            return Outcome(Verdict.ACCEPTED)
        except (self._pika.exceptions.UnroutableError, self._pika.exceptions.NackError) as error:
            return Outcome(Verdict.RETRY, f"the broker's queue is full or missing: {error!r}")
        except (self._pika.exceptions.AMQPError, OSError) as error:
            self.close()
            if not was_open:
                return Outcome(Verdict.RETRY, _describe(error))
        return self.send(message)

    def set_period(self, period_ms: int) -> None:
        """Send this period in a header of each message, as over HTTP."""
        if period_ms:
            self._headers[routing.PERIOD_HEADER] = f"{period_ms / 1_000:g}"

    def probe(self) -> str:
        """Returns why the exchange cannot be reached, or "". It sends no message."""
        try:
            self._open().exchange_declare(self._exchange, passive=True)
        except self._pika.exceptions.ChannelClosedByBroker as error:
            return f"{error.reply_text}. Does the server consume from this broker?"
        except self._pika.exceptions.ProbableAuthenticationError:
            return "the broker does not know this user, or the password is wrong"
        except (self._pika.exceptions.AMQPError, OSError) as error:
            return _describe(error)
        finally:
            self.close()
        return ""

    def close(self) -> None:
        channel, self._channel = self._channel, None
        if channel is None:
            return
        try:
            channel.connection.close()
        except (self._pika.exceptions.AMQPError, OSError):
            return  # it is closed already

    def _open(self) -> Any:
        if self._channel is None:
            self._channel = self._pika.BlockingConnection(self._parameters).channel()
            self._channel.confirm_delivery()
        return self._channel

    def _publish(self, message: Message) -> None:
        channel = self._open()
        properties = self._pika.BasicProperties(
            content_type=routing.LINES_TYPE,
            content_encoding="gzip",
            delivery_mode=_PERSISTENT,
            message_id=message.message_id.hex(),
            headers=self._headers,
        )
        channel.basic_publish(self._exchange, self._key, message.body, properties, mandatory=True)


def _import_pika() -> Any:
    try:
        return importlib.import_module("pika")
    except ImportError:
        raise Refused("amqp:// needs a library that is not installed", remedy="pip install pika") from None


def _describe(error: BaseException) -> str:
    """Returns the innermost error as one line; pika wraps errors several times."""
    candidates = (*error.args, getattr(error, "exception", None))
    inner = next((each for each in candidates if isinstance(each, BaseException)), None)
    return f"{type(error).__name__}: {error}" if inner is None else _describe(inner)
