"""collectd over HTTP and through RabbitMQ: it sends 10,000 samples each, and queries return the same values."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clients.conftest import Brokered
from tests.clients.support import collectd
from tests.clients.support.collectd import Collectd, by_plugin
from tests.clients.support.known import Known, assert_same, read_back, wait_for
from tests.clients.support.programs import Running
from tests.servers.processes import wait_until
from tests.servers.product import Served

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(600)]
SAMPLES = 10_000


def test_collectd_delivers_every_sample_over_http(served: Served, run: Callable[..., Running], tmp_path: Path) -> None:
    known = Known.make("collectdhttp", digits=True)
    url = f"http://127.0.0.1:{served.port}/api/v1/collectd"
    sender = Collectd.start(run, tmp_path, collectd.write_http(url, served.token))
    sender.put(known)

    def all_there() -> bool:
        sender.flush()  # what its own threads have put aside by now
        return sum(map(len, read_back(served, known.name).values())) >= SAMPLES

    wait_until(all_there, 180)
    stored = wait_for(served, known.name, SAMPLES, 0)
    assert assert_same(stored, known.samples(by_plugin)) == SAMPLES, sender.running.output()


def test_collectd_delivers_every_sample_through_the_broker(
    brokered: Brokered, run: Callable[..., Running], tmp_path: Path
) -> None:
    known = Known.make("collectdamqp", digits=True)
    sender = Collectd.start(run, tmp_path, collectd.amqp(brokered.port, brokered.user, brokered.served.token))
    sender.put(known)
    stored = wait_for(brokered.served, known.name, SAMPLES)
    assert assert_same(stored, known.samples(by_plugin)) == SAMPLES, sender.running.output()
