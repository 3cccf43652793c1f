"""Claims about the lease of runs: one holder on all machines; one that died or stalled holds up nobody for long."""

import os
import signal
from pathlib import Path

import pytest

from rollups.crash_points import ignore_point
from rollups.limits import LEASE_MS, LEASE_SKEW_MS
from rollups.run import last_times, lease
from rollups.run.lease import LeaseLost, hold_lease, is_free
from spm.clock import FakeClock, SystemClock
from spm.errors import Refused, StoreUnavailable
from spm.store.backends import open_backend
from spm.store.backends.memory import MemoryBackend


@pytest.fixture
def store() -> MemoryBackend:
    return MemoryBackend()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1_700_000_000_000)


def test_one_of_two_machines_holds_it_until_it_is_given_back(
    store: MemoryBackend, clock: FakeClock, tmp_path: Path
) -> None:
    with hold_lease(store, tmp_path / "one", clock):
        assert not is_free(store, tmp_path / "two", clock)
        with pytest.raises(Refused, match="in progress"), hold_lease(store, tmp_path / "two", clock):
            pass
    assert is_free(store, tmp_path / "two", clock)
    with hold_lease(store, tmp_path / "two", clock):
        assert not is_free(store, tmp_path / "one", clock)


def test_a_waiting_machine_takes_it_when_it_is_over(store: MemoryBackend, clock: FakeClock, tmp_path: Path) -> None:
    with hold_lease(store, tmp_path / "stalled", clock) as stalled:
        following = hold_lease(store, tmp_path / "next", clock, wait_s=LEASE_MS / 1000 + 1)
        with following, pytest.raises(LeaseLost, match="taken over"):
            stalled.checked(ignore_point)("planned")
        assert is_free(store, tmp_path / "other", clock), "the former holder does not take it back"


def test_a_holder_that_stalled_goes_on_where_nobody_took_over(
    store: MemoryBackend, clock: FakeClock, tmp_path: Path
) -> None:
    with hold_lease(store, tmp_path / "one", clock) as lease_of_one:
        clock.advance(2 * LEASE_MS)
        lease_of_one.checked(ignore_point)("planned")
        assert not is_free(store, tmp_path / "two", clock)


def test_a_renewed_lease_is_held_for_longer_than_one_lasts(
    store: MemoryBackend, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "LEASE_RENEW_S", 0.005)
    with hold_lease(store, tmp_path / "one", clock):
        for _ in range(3):
            clock.advance(LEASE_MS - 1)
            before = store.get("config", [lease.KEY])
            while store.get("config", [lease.KEY]) == before:
                pass
            assert not is_free(store, tmp_path / "two", clock)


def test_a_store_that_is_away_for_a_while_ends_no_lease(
    store: MemoryBackend, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hold_lease(store, tmp_path / "one", clock) as lease_of_one:
        clock.advance(LEASE_MS)
        with monkeypatch.context() as away:
            away.setattr(MemoryBackend, "get", _refuse)
            with pytest.raises(StoreUnavailable):
                lease_of_one.check()
        lease_of_one.check()


def _refuse(*_: object) -> None:
    raise StoreUnavailable("away")


def test_a_clock_that_was_far_ahead_and_damaged_bytes_hold_nobody_up(
    store: MemoryBackend, clock: FakeClock, tmp_path: Path
) -> None:
    clock.jump(LEASE_SKEW_MS + 1)
    with hold_lease(store, tmp_path / "one", clock):
        clock.jump(-LEASE_SKEW_MS - 1)
        assert is_free(store, tmp_path / "two", clock)
    store.put([("config", [(lease.KEY, {b"v": b"\xc1"}), (last_times.MAINTAINED, {b"v": b"\xc1"})])])
    assert last_times.read(store, last_times.MAINTAINED) is None
    with hold_lease(store, tmp_path / "two", clock):
        pass


def test_a_killed_holder_frees_it_at_once_on_its_own_machine(tmp_path: Path) -> None:
    url, clock = f"lmdb://{tmp_path}/store", SystemClock()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        with hold_lease(open_backend(url), tmp_path / "spark", clock):
            os.write(writing, b"1")
            signal.pause()
    assert os.read(reading, 1) == b"1"
    store = open_backend(url)
    assert not is_free(store, tmp_path / "spark", clock)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert is_free(store, tmp_path / "spark", clock)
    assert not is_free(store, tmp_path / "elsewhere", clock), "another machine cannot know yet"
    with hold_lease(store, tmp_path / "spark", clock):
        pass


def test_one_of_two_that_read_the_same_time_claims_it(store: MemoryBackend) -> None:
    assert [last_times.claim(store, last_times.RUN_STARTED, None, at) for at in (5, 6)] == [True, False]
    assert last_times.read(store, last_times.RUN_STARTED) == 5
    assert last_times.claim(store, last_times.RUN_STARTED, 5, 7)
