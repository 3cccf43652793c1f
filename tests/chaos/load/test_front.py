"""The web server and RabbitMQ, both over TLS with an authority of our own: what senders are told, and how fast."""

import gzip
import http.client
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ingest.agent.server.push import open_push
from ingest.agent.server.push.base import Verdict
from ingest.agent.spool.records import Message as AgentMessage
from spm.errors import QueueUnavailable
from tests.chaos.line.agents import Message
from tests.chaos.line.thin_line import Line
from tests.conftest import missing_service
from tests.servers.authority import Signed, sign
from tests.servers.processes import wait_until
from tests.servers.rabbitmq import RabbitMQ
from tests.support.messages import RECENT_MS, message
from tests.support.stored import copies

pytestmark = [pytest.mark.real, pytest.mark.chaos, pytest.mark.slow]
START_MS = RECENT_MS


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Signed:
    return sign(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, signed: Signed) -> Iterator[RabbitMQ]:
    server = RabbitMQ(tmp_path_factory.mktemp("broker"), signed=signed)
    if reason := server.missing():
        missing_service(reason)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory, broker: RabbitMQ, signed: Signed) -> Iterator[Line]:
    folder: Path = tmp_path_factory.mktemp("line")
    line_ = Line(folder, f"lmdb://{folder}/store", f"{broker.url_over_tls()}&partitions=2")
    line_.certificate = signed.certificate, signed.key
    yield line_
    line_.close()


@pytest.fixture(scope="module")
def token(line: Line) -> str:
    token = line.token()
    line.start_web()
    line.start_worker()
    return token


def post(line: Line, token: str, ca: Path, number: int) -> tuple[int, str | None, float]:
    """(status, Retry-After, seconds) of one push over HTTPS."""
    begun = time.monotonic()
    context = ssl.create_default_context(cafile=str(ca))
    connection = http.client.HTTPSConnection("127.0.0.1", line.port, timeout=15, context=context)
    headers = {"Authorization": f"Bearer {token}", "X-Message-Id": f"{number:032x}"}
    connection.request("POST", "/write?precision=ms", Message(number, START_MS).body(), headers)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status, answer.headers["Retry-After"], time.monotonic() - begun


def test_a_push_goes_over_https_and_amqps_into_the_store(line: Line, token: str, signed: Signed) -> None:
    assert post(line, token, signed.ca, 1)[0] == 204
    assert wait_until(lambda: (1).to_bytes(16, "big") in copies(line.backend), 60)


def test_our_agent_trusts_the_authority_that_the_system_is_told_of(
    line: Line, token: str, signed: Signed, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = AgentMessage(2, (2).to_bytes(16, "big"), gzip.compress(Message(2, START_MS).body()))
    stranger = open_push(f"https://127.0.0.1:{line.port}", token=token, source="h")
    assert stranger.send(body).verdict is Verdict.RETRY, "nobody vouches for the server"
    monkeypatch.setenv("SSL_CERT_FILE", str(signed.ca))
    for url in (f"https://127.0.0.1:{line.port}", line.amqp_url):
        push = open_push(url, token=token, source="h")
        assert push.send(body).verdict is Verdict.ACCEPTED
        push.close()


def test_a_broker_that_nobody_vouches_for_is_not_talked_to(
    broker: RabbitMQ, line: Line, caplog: pytest.LogCaptureFixture
) -> None:
    strange = Line(line.folder, line.store_url, broker.url_over_tls().partition("?")[0])
    with pytest.raises(QueueUnavailable, match="not connected") as refused:
        strange.transport.publish(message(1), 5)
    assert "certificate" not in str(refused.value).lower(), "senders read this; the log is for operators"
    assert wait_until(lambda: "CERTIFICATE_VERIFY_FAILED" in caplog.text, 10)
    strange.transport.close()


@pytest.mark.timed
def test_a_blocked_broker_is_told_to_senders_within_a_second_and_heals(
    line: Line, token: str, signed: Signed, broker: RabbitMQ
) -> None:
    assert post(line, token, signed.ca, 10)[0] == 204
    broker.control("set_vm_memory_high_watermark", "absolute", "1MB")
    try:
        assert wait_until(lambda: "memory" in broker.control("eval", "rabbit_alarm:get_alarms()."), 10)
        for number in (11, 12, 13):
            status, again, took_s = post(line, token, signed.ca, number)
            assert (status, again is not None and int(again) > 0) == (503, True)
            assert took_s < 1
    finally:
        broker.control("set_vm_memory_high_watermark", "absolute", "1GB")
    assert wait_until(lambda: post(line, token, signed.ca, 14)[0] == 204, 20)
    assert wait_until(lambda: (14).to_bytes(16, "big") in copies(line.backend), 60)
