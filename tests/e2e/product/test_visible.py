"""How soon an accepted sample is seen, in the embedded product under its everyday load: many small requests."""

import threading

import pytest

from tests.bench.__main__ import seconds_to_visible
from tests.servers.product import Served
from tests.support.fleet import Fleet

pytestmark = [pytest.mark.serial, pytest.mark.timed, pytest.mark.slow, pytest.mark.timeout(600)]
P99_MAX_S = 2.0


@pytest.mark.seed("A2", compares="the time from acceptance to sight of every sample, with 2 s")
def test_an_accepted_sample_is_visible_within_two_seconds_while_a_hundred_agents_push(served: Served) -> None:
    stop = threading.Event()
    agents = threading.Thread(target=push_like_agents, args=(served, stop))
    agents.start()
    try:
        seen = sorted(seconds_to_visible(served, str(n)) for n in range(40))
    finally:
        stop.set()
        agents.join()
    assert seen[-1] <= P99_MAX_S, f"worst of 40: {seen[-1]:.2f} s"


def push_like_agents(served: Served, stop: threading.Event) -> None:
    """A hundred agents at ten seconds each: one request in 100 ms."""
    connection = served.connection()
    for body in Fleet.make(hosts=100, steps=20, start_ms=1_767_225_600_000).agent_bodies():
        served.push(connection, body)
        if stop.wait(0.1):
            return
