"""Agents that RabbitMQ knows by their tokens: what it lets them do, and what becomes of what they send.

A real broker asks a real site; bodies are as Telegraf's ``outputs.amqp``, collectd's ``amqp`` and our own agent send.
"""

import gzip
import json
import time
from collections.abc import Iterator

import numpy as np
import pika
import pytest
from pika.exceptions import AMQPError
from pytest_django.live_server_helper import LiveServer

from ingest.agent.server.push import open_push
from ingest.agent.server.push.base import Verdict
from ingest.agent.spool.records import Message
from ingest.routing import AGENTS
from ingest.senders import principals
from ingest.transport.amqp_receive import Receiver
from ingest.transport.delivery import Delivery
from ingest.transport.topology import DEAD, Address
from ingest.worker.agent_messages import AgentMessageAcceptor
from spm import limits
from spm.accounts import tokens
from spm.accounts.models import App, Organisation, Token
from spm.bounded import TtlMap
from spm.clock import SystemClock
from spm.errors import BadMessage
from spm.wire import Envelope, parse_canonical
from tests.conftest import missing_service
from tests.servers.amqp_look import letters
from tests.servers.processes import wait_until
from tests.servers.rabbitmq import RabbitMQ
from tests.support import process_state
from tests.support.acceptors import accept_alone, silent_announcer
from tests.support.messages import message, recent

pytestmark = [pytest.mark.real, pytest.mark.django_db(transaction=True)]
SECRET = "between-broker-and-site"
NOW_S = SystemClock().now_ms() // 1000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, live_server: LiveServer) -> Iterator[RabbitMQ]:
    server = RabbitMQ(tmp_path_factory.mktemp("broker"), site=f"{live_server.url}/broker/{SECRET}")
    if reason := server.missing():
        missing_service(reason)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def token(settings: object) -> tuple[Token, str]:
    settings.SPM_BROKER_SECRET = SECRET  # type: ignore[attr-defined]
    settings.SPM_AMQP_URL = "amqp://localhost/%2F"  # type: ignore[attr-defined]
    process_state.forget_principals()
    app = App.objects.create(organisation=Organisation.objects.create(name="Acme"), name="Shop")
    return tokens.issue(app, name="agent", scopes=("ingest",))


class Arrivals:
    """The deliveries of a worker, and the envelopes that its acceptor makes of them."""

    def __init__(self, url: str) -> None:
        self.got: list[Delivery] = []
        self.receiver = Receiver(Address.parse(url), self.got.append)
        self.acceptor = AgentMessageAcceptor(silent_announcer(SystemClock()), SystemClock())
        self.receiver.open()

    def next(self) -> Delivery:
        assert wait_until(lambda: bool(self.got), 20)
        delivery = self.got.pop(0)
        self.receiver.acknowledge(delivery.ack_handle, multiple=False)
        return delivery

    def accepted(self) -> Envelope:
        """The envelope of what comes next."""
        envelope = accept_alone(self.acceptor, self.next())
        assert envelope is not None
        return envelope


@pytest.fixture
def arrivals(broker: RabbitMQ) -> Iterator[Arrivals]:
    url = f"{broker.url}?partitions=4&agents=1"
    stream = Arrivals(url)
    assert wait_until(lambda: len(stream.receiver.queues()) == len(Address.parse(url).queues()), 20)
    yield stream
    stream.receiver.close()


def publish(url: str, key: str, body: bytes, exchange: str = AGENTS, **properties: object) -> None:
    """One message with a confirm, as a program with an AMQP library sends it."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish(exchange, key, body, pika.BasicProperties(**properties), mandatory=True)
    finally:
        if connection.is_open:
            connection.close()


def series(envelope: Envelope) -> dict[tuple[str, str], float]:
    """(metric, all labels as text) → value."""
    values = {}
    for index, value in zip(envelope.series_index, envelope.values, strict=True):
        metric, labels = parse_canonical(envelope.series.canonical(int(index)))
        values[metric, ",".join(f"{k}={v}" for k, v in sorted(labels.items()))] = float(value)
    return values


def test_what_telegraf_sends_is_accepted_for_the_app_of_its_token(
    broker: RabbitMQ, arrivals: Arrivals, token: tuple[Token, str]
) -> None:
    row, secret = token
    lines = f"cpu,host=web1 usage_idle=97.5,usage_user=2i {NOW_S}000000000\nmem,host=web1 used=5i {NOW_S}000000000\n"
    publish(
        broker.url_of(row.prefix, secret),
        f"{row.prefix}.web1",
        lines.encode(),
        content_type="text/plain",
        delivery_mode=2,
        headers={"database": "telegraf", "retention_policy": "default"},
    )
    envelope = arrivals.accepted()
    assert (envelope.app, envelope.source, set(envelope.ts)) == (row.app_id, "web1", {NOW_S * 1000})
    assert series(envelope) == {
        ("cpu_usage_idle", "host=web1"): 97.5,
        ("cpu_usage_user", "host=web1"): 2.0,
        ("mem_used", "host=web1"): 5.0,
    }


def test_what_telegraf_sends_compressed_is_the_same(
    broker: RabbitMQ, arrivals: Arrivals, token: tuple[Token, str]
) -> None:
    row, secret = token
    body = gzip.compress(f"m v=1 {NOW_S}000000000\n".encode())
    publish(broker.url_of(row.prefix, secret), f"{row.prefix}.web1", body, content_encoding="gzip")
    assert series(arrivals.accepted()) == {("m_v", ""): 1.0}


def test_what_collectd_sends_is_accepted(broker: RabbitMQ, arrivals: Arrivals, token: tuple[Token, str]) -> None:
    row, secret = token
    lists = [
        {
            "values": [10, 20.5],
            "dstypes": ["derive", "derive"],
            "dsnames": ["rx", "tx"],
            "time": NOW_S + 0.25,
            "interval": 10.0,
            "host": "db1",
            "plugin": "interface",
            "plugin_instance": "eth0",
            "type": "if_octets",
            "type_instance": "",
            "meta": {"network:received": True},
        },
        {
            "values": [0.5],
            "dstypes": ["gauge"],
            "dsnames": ["value"],
            "time": NOW_S,
            "interval": 10.0,
            "host": "db1",
            "plugin": "load",
            "plugin_instance": "",
            "type": "load",
            "type_instance": "short",
        },
        {
            "values": [None],
            "dstypes": ["gauge"],
            "dsnames": ["value"],
            "time": NOW_S,
            "interval": 10.0,
            "host": "db1",
            "plugin": "temp",
            "plugin_instance": "",
            "type": "temp",
            "type_instance": "",
        },
    ]
    publish(broker.url_of(row.prefix, secret), row.prefix, json.dumps(lists).encode(), content_type="application/json")
    envelope = arrivals.accepted()
    assert series(envelope) == {
        ("interface_if_octets_rx", "host=db1,instance=eth0"): 10.0,
        ("interface_if_octets_tx", "host=db1,instance=eth0"): 20.5,
        ("load", "host=db1,type=short"): 0.5,
    }
    assert (envelope.source, set(envelope.ts)) == (f"token-{row.pk}", {NOW_S * 1000, NOW_S * 1000 + 250})


def test_our_columns_are_taken_but_not_the_identity_they_claim(
    broker: RabbitMQ, arrivals: Arrivals, token: tuple[Token, str]
) -> None:
    row, secret = token
    sent = recent(message(3, app=row.app_id + 1, source="claimed", samples=5))
    publish(broker.url_of(row.prefix, secret), f"{row.prefix}.real", sent.to_bytes(), user_id=row.prefix)
    envelope = arrivals.accepted()
    assert (envelope.app, envelope.source, envelope.stamp.process) == (row.app_id, "real", 1)
    assert np.array_equal(envelope.values, sent.values)
    assert np.array_equal(envelope.series.ids, sent.series.ids)


def test_our_agent_is_known_by_its_token(broker: RabbitMQ, arrivals: Arrivals, token: tuple[Token, str]) -> None:
    row, secret = token
    push = open_push(f"{broker.url_of(row.prefix, secret)}?partitions=4", token=secret, source="web-1")
    assert (
        push.send(Message(1, b"\xab" * 16, gzip.compress(f"cpu v=1 {NOW_S}000\n".encode()))).verdict is Verdict.ACCEPTED
    )
    push.close()
    envelope = arrivals.accepted()
    assert (envelope.app, envelope.source, envelope.message_id) == (row.app_id, "web-1", b"\xab" * 16)
    assert set(envelope.ts) == {NOW_S * 1000}


@pytest.mark.parametrize("wrong", ["password", "scope", "revoked", "another's", "nobody"])
def test_the_broker_lets_nobody_in_with_a_wrong(
    broker: RabbitMQ, arrivals: Arrivals, token: tuple[Token, str], wrong: str
) -> None:
    row, secret = token
    other, others = tokens.issue(row.app, name="other", scopes=("read",) if wrong == "scope" else ("ingest",))
    user, password = {
        "password": (row.prefix, secret[:-1] + ("y" if secret.endswith("x") else "x")),
        "scope": (other.prefix, others),
        "revoked": (row.prefix, secret),
        "another's": (row.prefix, others),
        "nobody": ("nobody", "x"),
    }[wrong]
    if wrong == "revoked":
        tokens.revoke(row)
    with pytest.raises(AMQPError):
        publish(broker.url_of(user, password), f"{user}.h", b"m v=1")


@pytest.mark.parametrize(
    ("exchange", "key"),
    [(AGENTS, "{other}.h"), (AGENTS, "#"), (AGENTS, "{own}x.h"), ("spm.metrics", "000"), ("", "spm.dead")],
    ids=["another token's key", "a pattern", "a longer id", "our own exchange", "a queue by its name"],
)
def test_the_broker_lets_a_sender_publish_nothing_under(
    broker: RabbitMQ, arrivals: Arrivals, token: tuple[Token, str], exchange: str, key: str
) -> None:
    row, secret = token
    other, _ = tokens.issue(row.app, name="other", scopes=("ingest",))
    with pytest.raises(AMQPError, match=r"(?i)refused"):
        publish(broker.url_of(row.prefix, secret), key.format(own=row.prefix, other=other.prefix), b"x", exchange)


@pytest.mark.parametrize("act", ["declare a queue", "read a queue", "delete the exchange", "bind"])
def test_the_broker_does_not_let_a_sender(
    broker: RabbitMQ, arrivals: Arrivals, token: tuple[Token, str], act: str
) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(broker.url_of(token[0].prefix, token[1])))
    channel = connection.channel()
    with pytest.raises(AMQPError, match=r"(?i)refused"):
        {
            "declare a queue": lambda: channel.queue_declare("mine"),
            "read a queue": lambda: channel.basic_get("spm.metrics.000"),
            "delete the exchange": lambda: channel.exchange_delete(AGENTS),
            "bind": lambda: channel.queue_bind("spm.metrics.000", AGENTS, "x"),
        }[act]()
    connection.close()


def test_a_user_id_that_is_not_the_senders_is_refused_by_the_broker(
    broker: RabbitMQ, arrivals: Arrivals, token: tuple[Token, str]
) -> None:
    row, secret = token
    with pytest.raises(AMQPError, match="PRECONDITION_FAILED"):
        publish(broker.url_of(row.prefix, secret), f"{row.prefix}.h", b"m v=1", user_id="guest")


def test_a_revoked_token_ends_on_a_connection_that_stays_open(
    broker: RabbitMQ, arrivals: Arrivals, token: tuple[Token, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(principals, "_principals", TtlMap(10, 0.2))
    row, secret = token
    connection = pika.BlockingConnection(pika.URLParameters(broker.url_of(row.prefix, secret)))
    channel = connection.channel()
    channel.basic_publish(AGENTS, f"{row.prefix}.h", b"m v=1")
    arrivals.accepted()
    tokens.revoke(row)
    time.sleep(0.3)
    channel.basic_publish(AGENTS, f"{row.prefix}.h", b"m v=1")
    with pytest.raises(BadMessage, match="no valid token"):
        arrivals.accepted()
    connection.close()


def test_messages_of_one_source_share_a_queue_and_sources_are_spread(
    broker: RabbitMQ, arrivals: Arrivals, token: tuple[Token, str]
) -> None:
    row, secret = token
    connection = pika.BlockingConnection(pika.URLParameters(broker.url_of(row.prefix, secret)))
    channel = connection.channel()
    for number in range(120):
        channel.basic_publish(AGENTS, f"{row.prefix}.host{number % 40}", b"m v=%d" % number)
    got = [arrivals.next() for _ in range(120)]
    connection.close()
    queues = {key: {d.queue for d in got if d.key == key} for key in {d.key for d in got}}
    assert all(len(of_one) == 1 for of_one in queues.values())
    assert len(set.union(*queues.values())) == 4, "every partition has some of forty sources"
    numbers = {key: [int(d.body[4:]) for d in got if d.key == key] for key in queues}
    assert all(order == sorted(order) for order in numbers.values())


def test_a_body_larger_than_a_worker_can_hold_many_of_is_a_dead_letter(
    broker: RabbitMQ, arrivals: Arrivals, token: tuple[Token, str]
) -> None:
    row, secret = token
    body = b"#" * (limits.AMQP_PARTITION_BODY_BYTES_MAX + 1)
    publish(broker.url_of(row.prefix, secret), f"{row.prefix}.h", body)
    assert wait_until(lambda: len(letters(broker.url, DEAD)) == 1, 20)
    assert arrivals.got == []
