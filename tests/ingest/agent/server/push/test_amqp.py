"""The agent through RabbitMQ: the worker accepts lines from the queue as it does over HTTP."""

import gzip
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingest.agent.server.push import open_push
from ingest.agent.server.push.base import Verdict
from ingest.agent.spool.records import Message
from ingest.models import Arrival, RejectedLine
from ingest.routing import LINES_TYPE, PERIOD_HEADER, SENDER_HEADER, SOURCE_HEADER, TOKEN_HEADER
from ingest.transport.amqp_receive import Receiver
from ingest.transport.delivery import Delivery
from ingest.transport.topology import Address
from ingest.worker.agent_messages import AgentMessageAcceptor
from spm.accounts import tokens
from spm.accounts.models import App, Organisation, Source
from spm.clock import FakeClock
from spm.errors import BadMessage, Refused
from spm.store.backends.memory import MemoryBackend
from spm.store.ledger import watermarks
from spm.wire import Envelope, parse_canonical
from tests.servers.rabbitmq import RabbitMQ
from tests.support.acceptors import accept_alone, silent_announcer

ROOT = Path(__file__).resolve().parents[5]
NOW_MS = 1_700_000_000_000
BODY = gzip.compress(f"cpu,host=a usage_user=1.5,usage_idle=98i {NOW_MS}\nbad line\n".encode())
MESSAGE = Message(1, b"\xab" * 16, BODY)
BACKEND = MemoryBackend()


@pytest.fixture
def secret(transactional_db: None) -> str:  # the acceptor gives its connection back, as at the end of a request
    app = App.objects.create(organisation=Organisation.objects.create(name="Acme"), name="Shop")
    return tokens.issue(app, name="agent", scopes=("ingest",))[1]


def delivery(token: str, body: bytes = BODY, source: str = "web-1", **extra: object) -> Delivery:
    headers = {TOKEN_HEADER: token, SOURCE_HEADER: source, **extra}
    return Delivery(1, 1, "q", body, "ab" * 16, 0, LINES_TYPE, "gzip", headers)


def new_acceptor() -> AgentMessageAcceptor:
    clock = FakeClock(NOW_MS + 500)
    return AgentMessageAcceptor(silent_announcer(clock, BACKEND), clock)


def accepted(of: Delivery) -> Envelope:
    """Returns the envelope of an accepted delivery."""
    envelope = accept_alone(new_acceptor(), of)
    assert envelope is not None
    return envelope


@pytest.mark.django_db(transaction=True)
def test_lines_are_accepted_for_the_app_of_their_token(secret: str) -> None:
    envelope = accepted(delivery(secret))
    assert (envelope.app, envelope.source) == (App.objects.get().pk, "web-1")
    assert (envelope.message_id, envelope.stamp.ms) == (b"\xab" * 16, NOW_MS + 500)
    forms = [parse_canonical(envelope.series.canonical(index)) for index in envelope.series_index]
    assert [(metric, labels["host"]) for metric, labels in forms] == [("cpu_usage_user", "a"), ("cpu_usage_idle", "a")]
    assert np.array_equal(envelope.values, [1.5, 98.0])
    assert envelope.rejected == 1


@pytest.mark.django_db(transaction=True)
def test_accepted_lines_show_their_source(secret: str) -> None:
    accept_alone(new_acceptor(), delivery(secret, source="seen-first-here"))
    assert Source.objects.get().name == "seen-first-here"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("extra", "protocol", "period_ms"),
    [
        ({PERIOD_HEADER: "30", SENDER_HEADER: "spm-agent/1.0"}, "agent", 30_000),
        ({}, "influx", None),
        ({PERIOD_HEADER: b"often", SENDER_HEADER: 7}, "influx", None),
    ],
    ids=["our agent", "somebody else", "nonsense"],
)
def test_accepted_lines_show_their_protocol_and_period(
    secret: str, extra: dict[str, Any], protocol: str, period_ms: int | None
) -> None:
    accept_alone(new_acceptor(), delivery(secret, **extra))
    assert (Arrival.objects.get().way, Source.objects.get().period_ms) == (protocol, period_ms)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("token", ["", "nonsense", "read-only"])
def test_lines_without_a_good_token_are_rejected(secret: str, token: str) -> None:
    if token == "read-only":
        token = tokens.issue(App.objects.get(), name="reader", scopes=("read",))[1]
    with pytest.raises(BadMessage, match="no valid token"):
        accept_alone(new_acceptor(), delivery(token))


@pytest.mark.django_db(transaction=True)
def test_a_body_without_a_good_line_is_recorded_and_stands_in_the_balance(secret: str) -> None:
    store, clock = MemoryBackend(), FakeClock(NOW_MS)
    silent = AgentMessageAcceptor(silent_announcer(clock, store), clock)
    accepted = accept_alone(silent, delivery(secret, body=gzip.compress(b"bad line")))
    assert accepted is not None
    assert (len(accepted.ts), accepted.rejected) == (0, 1)
    silent.close()
    assert RejectedLine.objects.get().example == "bad line"
    [announced] = watermarks.read(store, App.objects.get().pk)[1].announcements
    assert (announced.messages, announced.samples, announced.rejected) == (1, 0, 1)


@pytest.mark.django_db(transaction=True)
def test_messages_of_a_worker_are_announced_until_it_returns_one(secret: str) -> None:
    store, clock = MemoryBackend(), FakeClock(NOW_MS)
    acceptor = AgentMessageAcceptor(silent_announcer(clock, store), clock)
    first = accept_alone(acceptor, delivery(secret))
    assert first is not None
    acceptor.confirm(first)
    acceptor.retire()
    second = accept_alone(acceptor, delivery(secret))
    acceptor.close()
    rows = {process: row.newest for process, row in watermarks.read(store, App.objects.get().pk).items()}
    states = {
        p: (w.messages, w.samples, w.rejected, w.open_messages, w.ended) for p, w in rows.items() if w is not None
    }
    assert states == {1: (1, 2, 1, 0, True), 2: (1, 2, 1, 1, True)}
    assert second is not None
    assert (first.message_id, first.stamp < second.stamp) == (second.message_id, True)


@pytest.mark.django_db(transaction=True)
def test_the_app_of_a_body_is_known_whatever_it_holds(secret: str) -> None:
    assert new_acceptor().app_of(delivery(secret, body=b"garbage")) == App.objects.get().pk
    assert new_acceptor().app_of(delivery("nonsense")) is None


@pytest.mark.django_db(transaction=True)
def test_a_body_that_cannot_be_inflated_is_rejected(secret: str) -> None:
    with pytest.raises(BadMessage, match="decompressed"):
        accept_alone(new_acceptor(), delivery(secret, body=b"no gzip"))


def test_without_its_library_an_amqp_address_is_rejected_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pika", None)
    with pytest.raises(Refused, match="pip install pika"):
        open_push("amqp://guest:guest@127.0.0.1:1/%2F", token="t", source="h")


def test_a_missing_broker_is_retried() -> None:
    outcome = open_push("amqp://guest:guest@127.0.0.1:1/%2F", token="t", source="h").send(MESSAGE)
    assert outcome.verdict is Verdict.RETRY


def test_the_agent_with_pika_carries_no_numpy_and_stays_small() -> None:
    code = (
        "import sys, psutil, ingest.agent.__main__; from ingest.agent.server.push import open_push;"
        "open_push('amqp://localhost', token='t', source='h');"
        "print('numpy' in sys.modules, 'django' in sys.modules, psutil.Process().memory_info().rss < 40_000_000)"
    )
    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["False", "False", "True"]


@pytest.mark.timed
@pytest.mark.real
@pytest.mark.django_db(transaction=True)
def test_a_push_through_the_broker_is_confirmed_and_accepted(amqp_vhost: str, secret: str) -> None:
    got: list[Delivery] = []
    receiver = Receiver(Address.parse(amqp_vhost), got.append)
    receiver.open()
    push = open_push(amqp_vhost, token=secret, source="web-1", period_ms=10_000)
    try:
        end = time.monotonic() + 60
        while push.send(MESSAGE).verdict is not Verdict.ACCEPTED:  # until the receiver has created the queues
            assert time.monotonic() < end
            time.sleep(0.1)
        assert push.probe() == ""  # type: ignore[attr-defined]  # of this one
        while not got:
            assert time.monotonic() < end
            time.sleep(0.05)
        envelope = accepted(got[0])
        receiver.acknowledge(got[0].ack_handle)
    finally:
        push.close()
        receiver.close()
    assert envelope.message_id == MESSAGE.message_id
    assert len(envelope) == 2
    assert got[0].headers[PERIOD_HEADER] == "10"


@pytest.mark.real
def test_a_broker_without_the_exchange_is_retried(rabbitmq: RabbitMQ) -> None:
    address = rabbitmq.new_vhost("bare")
    push = open_push(address, token="t", source="h")
    assert push.send(MESSAGE).verdict is Verdict.RETRY
    assert push.send(MESSAGE).verdict is Verdict.RETRY
    push.close()
    assert "no exchange" in push.probe()  # type: ignore[attr-defined]
    stranger = open_push(address.replace("guest:guest", "nobody:wrong"), token="t", source="h")
    assert "does not know this user" in stranger.probe()  # type: ignore[attr-defined]
