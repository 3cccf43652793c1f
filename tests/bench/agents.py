"""Bodies of many agents: 1,000 agents whose bodies hold 100 values each, over 32 and 256 connections, and paced.

CPU ms a request with every process of the server counted, requests a second, p50 and p99, beside the peer on the same
bodies in the same run. All series are known before the clock starts. Enter by ``agents``.
"""

import argparse
import time
from collections.abc import Sequence

import numpy as np

from spm.limits import HOUR_MS
from tests.bench import report
from tests.bench.bodies import FORMS, Form, bodies
from tests.bench.load import Result, drive, pace, post
from tests.servers.product import Served
from tests.support.fleet import Fleet

AGENTS, STEPS_EACH = 1_000, 10  # of ten values: 100 in a body
CONNECTIONS = (32, 256)
PACED_PER_S = 100
_SETTLE_S = 1.5


def agents(servers: Sequence[tuple[str, Served]], options: argparse.Namespace, start_ms: int) -> None:
    """Measure the loads in line protocol, or in the protocol that was asked for."""
    names = [name for name in (options.protocol or "line protocol").split(",") if name]
    forms = [form for form in FORMS if form.name in names]
    assert forms, f"unknown protocol {names}; there are {', '.join(form.name for form in FORMS)}"
    for number, form in enumerate(forms):
        _of_form(form, servers, options, start_ms + number * 4 * HOUR_MS)


def _of_form(form: Form, servers: Sequence[tuple[str, Served]], options: argparse.Namespace, start_ms: int) -> None:
    rounds = 1 + options.rounds * len(CONNECTIONS) + 2
    fleet = Fleet.make(hosts=options.agents, steps=STEPS_EACH * rounds, start_ms=start_ms)
    sent = {who: _requests(form, served, fleet, who, options.agents) for who, served in servers}
    for who, served in servers:
        drive(served.port, sent[who][0], connections=8)
        time.sleep(_SETTLE_S)
    for place, connections in enumerate(CONNECTIONS):
        costs = []
        for who, served in servers:
            of_load = [r for part in sent[who][1 + place * options.rounds :][: options.rounds] for r in part]
            before = served.cpu()
            result = drive(served.port, of_load, connections=connections)
            costs.append(_shown(f"{form.name}, {connections} connections {_named(who, form)}", served, before, result))
        if len(costs) > 1:
            report.line(f"{form.name}, {connections} connections ratio", cpu=costs[0] / costs[1])
    costs = []
    for who, served in servers:
        at_begin: dict[str, float] = {}
        rounds = [part[: PACED_PER_S * 10] for part in sent[who][-2:]]  # the first opens each agent's connection
        result = pace(served.port, rounds, per_s=PACED_PER_S, begin=lambda: at_begin.update(served.cpu()))  # noqa: B023
        costs.append(_shown(f"{form.name}, {PACED_PER_S} bodies/s {_named(who, form)}", served, at_begin, result))
        report.line(f"{form.name}, {PACED_PER_S} bodies/s {who}", percent_of_a_core=costs[-1] * PACED_PER_S / 10)
    if len(costs) > 1:
        report.line(f"{form.name}, {PACED_PER_S} bodies/s ratio", cpu=costs[0] / costs[1])


def _named(who: str, form: Form) -> str:
    """The server, and what it was sent if it does not read the form."""
    return who if who == "product" or form.peer else f"{who} (remote write)"


def _requests(form: Form, served: Served, fleet: Fleet, who: str, hosts: int) -> list[list[bytes]]:
    """The requests of each round: one of every agent."""
    address = form.here if who == "product" else form.of_peer()
    headers = {**served.headers, **address.headers}
    all_bodies = list(bodies(fleet, address.encode, steps=STEPS_EACH, hosts=1))
    requests = [post(address.path, body, headers) for body in all_bodies]
    return [requests[at : at + hosts] for at in range(0, len(requests), hosts)]


def _shown(name: str, served: Served, before: dict[str, float], result: Result) -> float:
    """Print the figures of a load; CPU ms a request."""
    time.sleep(_SETTLE_S)
    count = max(len(result.took), 1)
    cpu = {process: 1e3 * seconds / 1e6 for process, seconds in report.spent(before, served.cpu(), count).items()}
    took = np.array(result.took or [0.0]) * 1e3
    report.line(
        name,
        per_s=count / result.wall_s,
        **{f"cpu_ms[{process}]": cost for process, cost in cpu.items()},
        p50_ms=float(np.percentile(took, 50)),
        p99_ms=float(np.percentile(took, 99)),
        requests=len(result.took),
        refused=result.refused or 0,
    )
    return cpu["all"]
