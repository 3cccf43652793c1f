"""Every protocol to durable: CPU µs per value of all processes of the product, beside the peer on the same bodies.

Bodies of 10,000 lines of ten values (of 100 hosts, and of 4,000 hosts) and of one agent (10 and 100 values); each
protocol's samples have times of their own, and all series are known before the clock starts. Protocols that the peer
does not speak stand beside its remote write of the same samples. A run of rollups may fall into the time of a load: so
the web server's part stands apart. Enter by ``protocols``.
"""

import argparse
import http.client
import time
from collections.abc import Sequence
from dataclasses import dataclass

from spm.limits import HOUR_MS
from tests.bench import report
from tests.bench.bodies import FORMS, Address, Form, bodies
from tests.servers.product import Served
from tests.support.fleet import Fleet

_SETTLE_S = 2.0  # what is still under way when the last answer comes belongs to the bodies, too
_WARM = 2  # bodies (of agents: a hundred times as many) before the clock starts
_APART_MS = 12 * HOUR_MS  # between the times of two loads
_TAKEN = (200, 202, 204)


@dataclass(frozen=True, slots=True)
class Load:
    """Bodies of one size."""

    name: str
    hosts: int
    steps_each: int
    hosts_each: int

    def warm(self) -> int:
        """Bodies that are sent beforehand."""
        return _WARM * (1 if self.hosts_each > 1 else 100)

    def steps(self, values: int) -> int:
        """Steps of a fleet that holds this many values, and what is sent beforehand."""
        ahead = -(-self.warm() * self.hosts_each // self.hosts) * self.steps_each
        return max(self.steps_each, values // (10 * self.hosts) // self.steps_each * self.steps_each) + ahead


LOADS = (
    Load("10,000 lines of 100 hosts", hosts=100, steps_each=100, hosts_each=100),
    Load("10,000 lines of 4,000 hosts", hosts=4_000, steps_each=5, hosts_each=2_000),
    Load("one agent, 10 values", hosts=100, steps_each=1, hosts_each=1),
    Load("one agent, 100 values", hosts=100, steps_each=10, hosts_each=1),
)


def protocols(servers: Sequence[tuple[str, Served]], options: argparse.Namespace, start_ms: int) -> None:
    """Measure every load in every protocol, or in the one that was asked for."""
    wanted = [form for form in FORMS if options.protocol in ("", form.name)]
    assert wanted, f"unknown protocol {options.protocol!r}; there are {', '.join(form.name for form in FORMS)}"
    number = 0
    for load in LOADS:
        values = options.large_values if load.hosts_each > 1 else options.agent_values
        for form in wanted:
            number += 1
            fleet = Fleet.make(hosts=load.hosts, steps=load.steps(values), start_ms=start_ms + number * _APART_MS)
            _compare(form, load, fleet, servers)


def _compare(form: Form, load: Load, fleet: Fleet, servers: Sequence[tuple[str, Served]]) -> None:
    name = f"{form.name}, {load.name}"
    cpu = []
    for (who, served), address in zip(servers, (form.here, form.of_peer()), strict=False):
        suffix = "" if who == "product" or form.peer else " (remote write)"
        cpu.append(_measured(f"{name} {who}{suffix}", served, address, load, fleet))
    if len(cpu) > 1:
        (all_here, web_server), (all_there, _) = cpu
        report.line(f"{name} ratio", cpu=all_here / all_there, web_server_alone=web_server / all_there)


def _measured(name: str, served: Served, address: Address, load: Load, fleet: Fleet) -> tuple[float, float]:
    bodies_ = list(bodies(fleet, address.encode, steps=load.steps_each, hosts=load.hosts_each))
    connection = served.connection()
    _post_all(served, connection, address, bodies_[: load.warm()])
    time.sleep(_SETTLE_S)
    timed = bodies_[load.warm() :]
    values = len(fleet) * len(timed) // len(bodies_)
    before, began = served.cpu(), time.perf_counter()
    took = _post_all(served, connection, address, timed)
    wall = time.perf_counter() - began
    time.sleep(_SETTLE_S)
    cpu = report.spent(before, served.cpu(), values)
    sent = sum(map(len, timed))
    report.line(
        name,
        values_per_s=values / wall,
        **{f"cpu_us[{n}]": v for n, v in cpu.items()},
        **report.quantiles(took),
        requests=len(timed),
        bytes_per_value=sent / values,
    )
    connection.close()
    return cpu["all"], cpu.get("gunicorn", cpu["all"])


def _post_all(
    served: Served, connection: http.client.HTTPConnection, address: Address, bodies_: Sequence[bytes]
) -> list[float]:
    """Seconds of each request; raises for a body that is not taken whole."""
    headers = {**served.headers, **address.headers}
    took = []
    for body in bodies_:
        began = time.perf_counter()
        connection.request("POST", address.path, body, headers)
        answer = connection.getresponse()
        said = answer.read()
        took.append(time.perf_counter() - began)
        if answer.status not in _TAKEN:
            raise RuntimeError(f"{address.path} answered {answer.status}: {said[:300]!r}")
    return took
