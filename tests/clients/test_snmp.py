"""A device that speaks SNMP, asked by Telegraf with the configuration of docs/how-to/sending.md."""

import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clients import telegraf
from tests.clients.support.known import Samples, read
from tests.clients.support.programs import Running, program
from tests.servers.product import Served

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(1200)]  # its first run builds Telegraf
PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "sending.md").read_text()
DEVICE = "192.0.2.7:161"
_WITHIN_S = 120


@pytest.fixture
def device(run: Callable[..., Running], tmp_path: Path) -> str:
    """The address of a device named switch-1."""
    snmpd = program("snmpd", "snmpd")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    (tmp_path / "snmpd.conf").write_text("rocommunity public 127.0.0.1\nsysName switch-1\n")
    own = f"--persistentDir={tmp_path}"
    run("snmpd", snmpd, "-f", "-Lo", "-C", "-c", tmp_path / "snmpd.conf", own, f"udp:{address}")
    return address


def test_names_times_up_and_counters_of_a_device_arrive_as_it_says_them(
    served: Served, run: Callable[..., Running], device: str, tmp_path: Path
) -> None:
    [section] = [part for part in PAGE.split("\n## ") if part.startswith("SNMP devices")]
    printed = "\n".join(line[4:] for line in section.splitlines() if line.startswith("    "))
    assert DEVICE in printed
    config = telegraf.agent(printed.replace(DEVICE, device), [telegraf.influxdb_v2(served, "*")])
    (tmp_path / "telegraf.conf").write_text(config)
    before = _received()
    running = run("telegraf", telegraf.binary(), "--config", tmp_path / "telegraf.conf")
    samples = _wait_for(served, "interface_in_bytes", 3)
    after = _received()
    named = {dict(labels)["interface"]: series for labels, series in samples.items()}
    assert {dict(labels)["host"] for labels in samples} == {"switch-1"}, running.output()
    values = [value for _, value in sorted(named["lo"].items())]
    assert before <= values[0] <= values[-1] <= after
    assert values == sorted(values)
    [uptimes] = _wait_for(served, "snmp_uptime", 3).values()
    [(first_ms, first_s), *_, (last_ms, last_s)] = sorted(uptimes.items())
    assert last_s - first_s == pytest.approx((last_ms - first_ms) / 1000, abs=1.5)


def _received() -> int:
    """Bytes that this machine's loopback has received."""
    rows = Path("/proc/net/dev").read_text().splitlines()
    return next(int(row.partition(":")[2].split()[0]) for row in rows if row.strip().startswith("lo:"))


def _wait_for(served: Served, name: str, count: int) -> Samples:
    """The samples of a metric once each of its series has so many, or after a timeout."""
    until = time.monotonic() + _WITHIN_S
    while time.monotonic() < until:
        samples = read(served, f"{name}[2d]")
        if samples and all(len(series) >= count for series in samples.values()):
            return samples
        time.sleep(0.5)
    raise AssertionError(f"{name} has not come within {_WITHIN_S} s: {samples}")
