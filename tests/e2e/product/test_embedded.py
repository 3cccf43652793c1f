"""The embedded product, whole: a fleet over HTTP, processes killed in the middle, rolled up by Spark, read back.

1 M samples in continuous integration; ``bin/test --proof embedded`` sends 10 M. Real processes by bin/start.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from spm.clock import SystemClock
from spm.limits import DAY_HOURS, HOUR_MS
from spm.query.reader import AppStorage
from spm.query.view.decoded_rows import PageCache
from spm.store import keys, manifest
from spm.store.backends import open_backend
from spm.store.backends.base import Backend
from spm.store.keys import PlacementTable
from spm.store.rollup.rows import StepColumns, decode_row
from spm.wire import metric_id
from tests.e2e.product.senders import Sender
from tests.servers.product import ROOT, Served, processes, start_product
from tests.support.fleet import FIELDS, Fleet
from tests.support.recount import assert_hours_equal, assert_raw_equal, days_of

START_MS = 1_767_225_600_000 - 2 * HOUR_MS  # the fleet crosses a midnight (2026-01-01 UTC)


@pytest.fixture(scope="class")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    running = start_product(tmp_path_factory.mktemp("product"))
    yield running
    running.stop()


@pytest.fixture(scope="class")
def fleet(request: pytest.FixtureRequest) -> Fleet:
    return Fleet.make(hosts=100, steps=request.cls.steps, start_ms=START_MS)


@pytest.fixture(scope="class")
def sent(served: Served, fleet: Fleet) -> Sender:
    """All bodies sent by two clients; web and worker killed with -9 while bodies are under way."""
    bodies = list(fleet.large_bodies(1_000))
    senders = [Sender(served), Sender(served)]
    with ThreadPoolExecutor(2) as pool:
        sent = [pool.submit(s.send_all, bodies[i::2], f"client{i}") for i, s in enumerate(senders)]
        for share, word in ((0.2, "gunicorn"), (0.5, "spm.worker"), (0.7, "gunicorn")):
            wait_for_acks(senders, round(share * len(bodies)))
            kill(served, word)
        for future in sent:
            future.result()
    return Sender(served, resent=sum(s.resent for s in senders), acked=sum(s.acked for s in senders))


def wait_for_acks(senders: Sequence[Sender], wanted: int, seconds: float = 300) -> None:
    """Look every 2 ms until so many bodies are acked."""
    until = time.monotonic() + seconds
    while sum(s.acked for s in senders) < wanted:
        assert time.monotonic() < until, f"fewer than {wanted} bodies were acked within {seconds} s"
        time.sleep(0.002)


def kill(served: Served, word: str) -> None:
    """SIGKILL every process of the product whose command line has this word."""
    victims = [p for p, name in processes(served.process.pid) if word in name]
    assert victims, f"no {word} process to kill"
    for process in victims:
        process.send_signal(signal.SIGKILL)


def storage(served: Served) -> AppStorage:
    backend = open_backend(f"lmdb://{served.data}/store")
    return AppStorage(backend, served.app, placement=PlacementTable(), clock=SystemClock(), cache=PageCache())


def manage(served: Served, *arguments: str) -> str:
    environment = {**os.environ, "SPM_DATA": str(served.data)}
    done = subprocess.run([str(ROOT / "bin/manage"), *arguments], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def stored_days(backend: Backend, app: int, day: int) -> list[StepColumns]:
    """The rows of `days` in force for the first field of the fleet."""
    months = [
        manifest.decode_month(cells[b"v"])
        for start, stop in keys.manifest_ranges(app)
        for key, cells in backend.scan("manifest", start, stop)
        if keys.parse_manifest(key)[1]
    ]
    number = metric_id(f"cpu_{FIELDS[0]}".encode())
    [(shard, pack)] = [(b, p) for month in months for b, p in month.days.items() if day in p.days]
    rows = backend.scan("days", *keys.app_range(shard, app))
    wanted = [
        c for k, c in rows if keys.parse_chunk(k)[2] == number and keys.parse_chunk(k)[4] == pack.generation.number
    ]
    return [decode_row(cells) for cells in wanted]


class EmbeddedClaims:
    """What must hold of a fleet of 100 hosts with ten fields, reporting ``steps`` times."""

    steps: int

    def test_every_acked_sample_is_read_back_bit_for_bit_after_kills_and_resends(
        self, served: Served, fleet: Fleet, sent: Sender
    ) -> None:
        assert sent.resent > 0, "the kills hit nothing"
        assert assert_raw_equal(storage(served), fleet) == len(fleet)

    def test_after_the_spark_run_raw_and_hours_still_equal_a_recount(
        self, served: Served, fleet: Fleet, sent: Sender
    ) -> None:
        manage(served, "roll")
        reading = storage(served)
        assert assert_raw_equal(reading, fleet) == len(fleet)
        assert assert_hours_equal(reading, fleet) > 0

    def test_closed_days_equal_a_recount(self, served: Served, fleet: Fleet, sent: Sender) -> None:
        manage(served, "roll")
        backend = open_backend(f"lmdb://{served.data}/store")
        day = days_of(fleet)[0]
        [day_rows] = stored_days(backend, served.app, day)
        per_day = fleet.values[(fleet.ts[:, 0] - 1) // (DAY_HOURS * HOUR_MS) == day]
        assert sorted(day_rows.rows.sum.tolist()) == sorted(per_day[:, :, 0].sum(axis=0).tolist())
        assert sorted(day_rows.rows.max.tolist()) == sorted(per_day[:, :, 0].max(axis=0).tolist())
        assert day_rows.rows.count.tolist() == [per_day.shape[0]] * fleet.hosts


@pytest.mark.serial
@pytest.mark.slow
@pytest.mark.timeout(1500)
class TestEmbedded(EmbeddedClaims):
    """One million samples."""

    steps = 1_000


@pytest.mark.proof
@pytest.mark.serial
class TestEmbeddedTenMillion(EmbeddedClaims):
    """The long form: ten million."""

    steps = 10_000
