"""However many processes take portions of one quota at once, and in whichever store it is counted: never too much."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from spm import limits
from spm.store.backends.base import Backend
from spm.store.ledger import quota
from tests.contracts.test_backends import backend

__all__ = ["backend"]  # the fixture
APP, NOW_MS = 7, 1_700_000_000_000


def at_once(take: Callable[[], int], processes: int = 4) -> list[int]:
    """What each of so many got in all, taking until nothing is given any more."""

    def takes(_: int) -> int:
        total = 0
        while given := take():
            total += given
        return total

    with ThreadPoolExecutor(processes) as pool:
        return list(pool.map(takes, range(processes)))


def test_series_given_to_all_processes_are_the_quota_and_not_one_more(backend: Backend) -> None:
    got = at_once(lambda: quota.take_series(backend, APP, wanted=30, quota=1_000, now_ms=NOW_MS))
    assert sum(got) == 1_000
    assert quota.series_of(backend, APP) == 1_000
    assert quota.take_series(backend, APP + 1, wanted=30, quota=1_000, now_ms=NOW_MS) == 30


def test_samples_given_to_all_processes_are_a_burst_and_one_portion(backend: Backend) -> None:
    def take() -> int:
        return 500 if quota.take_samples(backend, APP, wanted=500, rate=1_000, now_ms=NOW_MS).given else 0

    assert sum(at_once(take)) == 1_000 * limits.QUOTA_BURST_S + 500
