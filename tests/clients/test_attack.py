"""One token sends new series without end: its old series and those of all other apps are not affected.

In continuous integration 40,000 new series over a quota of 3,000; as a proof a million over 100,000
(SPM_CLIENTS_SERIES, SPM_CLIENTS_QUOTA). The reports of the attacker's old series, some of them in bodies full of new
series, and those of another app are sent at the same time, and queries return all of them.
"""

import http.client
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.clients.support.apps import new_apps
from tests.clients.support.known import Known, assert_same, wait_for
from tests.servers.product import Served

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(1_800)]
SAMPLES = 10_000
AT_ONCE = 5_000  # new series in one body
PATIENCE_S = 30.0  # of a client: no answer to the neighbour takes longer, however busy the machine


def new_series(count: int, beside: Known) -> Iterator[bytes]:
    """Bodies of new series, each with one report of old series in the middle."""
    now_ms = round(time.time() * 1_000)
    for number, first in enumerate(range(0, count, AT_ONCE)):
        lines = [f"flood,id={n} v=1i {now_ms}\n" for n in range(first, min(first + AT_ONCE, count))]
        half = len(lines) // 2
        yield "".join([*lines[:half], beside.report(number, unit=""), *lines[half:]]).encode()


def flood(attacker: Served, bodies: Iterator[bytes]) -> list[int]:
    """The status of each body."""
    connection = attacker.connection()
    return [attacker.push(connection, body) for body in bodies]


def report(app: Served, known: Known) -> list[float]:
    """Send a step at a time; the seconds each answer took."""
    took = []
    connection: http.client.HTTPConnection = app.connection()
    for step in range(known.steps):
        began = time.monotonic()
        assert app.push(connection, known.report(step, unit="").encode()) == 204
        took.append(time.monotonic() - began)
    return took


def attacked(served: Served, *, series: int, quota: int) -> str:
    """Run the attack; returns the answer times of another app."""
    attacker, neighbour = new_apps(served, (quota, None))
    mine, theirs = Known.make(f"mine{quota}"), Known.make(f"theirs{quota}")
    beside = Known.make(f"beside{quota}", steps=-(-series // AT_ONCE))
    for app, known in ((attacker, mine), (attacker, beside), (neighbour, theirs)):  # known before the attack
        assert app.push(app.connection(), known.report(0, unit="").encode()) == 204
    with ThreadPoolExecutor(3) as pool:
        answers = pool.submit(flood, attacker, new_series(series, beside))
        old, felt = pool.submit(report, attacker, mine), pool.submit(report, neighbour, theirs)
    assert set(answers.result()) <= {204, 400}
    assert answers.result()[-1] == 400, "the last body is over the quota"
    assert assert_same(wait_for(attacker, mine.name, len(mine)), mine.samples()) == SAMPLES
    assert assert_same(wait_for(attacker, beside.name, len(beside)), beside.samples()) == len(beside)
    assert assert_same(wait_for(neighbour, theirs.name, len(theirs)), theirs.samples()) == SAMPLES
    stored = wait_for(attacker, "flood", quota - 200)
    assert quota - 200 - quota // 50 <= len(stored) <= quota - 200, "the quota, less the old series"
    assert max(old.result() + felt.result()) < PATIENCE_S
    return (
        f"{len(stored)} of {series} new series are in; the neighbour waited {1e3 * max(felt.result()):.0f} ms at most"
    )


def test_an_attack_of_new_series_leaves_old_series_and_neighbours_alone(served: Served) -> None:
    attacked(served, series=40_000, quota=3_000)


@pytest.mark.proof
def test_an_attack_of_a_million_new_series_leaves_old_series_and_neighbours_alone(served: Served) -> None:
    series, quota = (int(os.environ.get(f"SPM_CLIENTS_{n}", d)) for n, d in (("SERIES", 1_000_000), ("QUOTA", 100_000)))
    print(attacked(served, series=series, quota=quota))
