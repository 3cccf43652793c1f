"""The downloaded agent through RabbitMQ: each sample is stored once although the broker is killed, and it is up."""

import json
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clients.conftest import Brokered
from tests.clients.support.known import read
from tests.clients.support.programs import Running
from tests.servers.processes import wait_until
from tests.servers.product import Served

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(900)]
WITHIN_S = 240
AWAY = 5  # looks while the broker is dead
CONFIG = """\
url = "amqp://{user}:{token}@127.0.0.1:{port}/%2F"
api_url = "http://127.0.0.1:{site}"
token = "{token}"
host = "{host}"
period_s = 1
spool = "{folder}/spool"
discover = false
off = ["processes", "containers", "disks", "network"]

[[command]]
name = "count"
run = ["{folder}/count"]
"""
COUNT = """\
#!/bin/sh
cd '{folder}'
echo >>said
echo "{metric} value=$(wc -l <said)"
"""


def api_rows(served: Served, path: str) -> list[dict[str, object]]:
    """Returns the rows of the site's API."""
    request = urllib.request.Request(f"http://127.0.0.1:{served.port}{path}", headers=dict(served.headers))
    with urllib.request.urlopen(request, timeout=60) as answer:
        result: list[dict[str, object]] = json.load(answer)
        return result


def prepared(brokered: Brokered, folder: Path, *, host: str, metric: str) -> list[str | Path]:
    """The downloaded agent, with a command that prints 1, 2, 3…"""
    served = brokered.served
    program, config, count = folder / "agent.pyz", folder / "agent.toml", folder / "count"
    urllib.request.urlretrieve(f"http://127.0.0.1:{served.port}/agent.pyz", program)
    count.write_text(COUNT.format(folder=folder, metric=metric))
    count.chmod(0o755)
    filled = CONFIG.format(
        user=brokered.user, token=served.token, port=brokered.port, site=served.port, host=host, folder=folder
    )
    config.write_text(filled)
    config.chmod(0o600)
    return [sys.executable, program, "--config", config]


def test_the_agent_delivers_every_sample_once_through_a_broker_that_is_killed(
    brokered: Brokered, run: Callable[..., Running], tmp_path: Path
) -> None:
    served, host, metric = brokered.served, "through-broker", "agentcount"
    agent = run("agent", *prepared(brokered, tmp_path, host=host, metric=metric))

    def line_count() -> int:
        """Returns how many samples it has collected so far."""
        return (tmp_path / "said").read_text().count("\n") if (tmp_path / "said").exists() else 0

    def stored() -> list[float]:
        """Returns the stored values, in the order of their times."""
        columns = list(read(served, f'{metric}{{host="{host}"}}[1d]').values())
        assert len(columns) <= 1
        return [column[ms] for column in columns for ms in sorted(column)]

    assert wait_until(lambda: len(stored()) >= 3, WITHIN_S), agent.output()
    brokered.broker.kill()
    before = line_count()
    assert wait_until(lambda: line_count() >= before + AWAY, WITHIN_S), agent.output()
    brokered.broker.start()
    waiting = line_count()
    assert wait_until(lambda: len(stored()) >= waiting, WITHIN_S), agent.output()
    result = stored()
    assert result == [float(n + 1) for n in range(len(result))]

    def settled() -> bool:
        """Whether it reports an empty spool, and is up."""
        own = [each for each in api_rows(served, "/api/v1/agents") if each["name"] == host]
        return [(each["state"], each["dropped_samples"]) for each in own] == [("up", 0)]

    assert wait_until(settled, WITHIN_S), api_rows(served, "/api/v1/agents")
    [complete] = [
        each for each in api_rows(served, f"/api/v1/apps/{served.app}/completeness?hours=1") if each["source"] == host
    ]
    assert (complete["period_ms"], complete["missing"]) == (1_000, 0)
