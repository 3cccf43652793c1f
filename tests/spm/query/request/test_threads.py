"""Several hands: the numbers of one, whatever fails is told when all have ended, and nobody waits for a hand."""

import threading
from collections.abc import Callable

import numpy as np
import pytest

from spm.query.promql.kernels import windows
from spm.query.promql.kernels.windows import Steps
from spm.query.request import threads as request_threads
from spm.query.samples.sample_runs import SampleRuns
from tests.spm.query.promql.generated import START, dataset, stored

STEPS = Steps(START + 60_000, 37_000, 40)


@pytest.fixture
def strips() -> SampleRuns:
    return stored(dataset(3, low_counters=True)).select_runs([], START - 1, START + 10**8)


@pytest.mark.parametrize("function", ["avg_over_time", "max_over_time", "rate", "quantile_over_time"])
@pytest.mark.parametrize("several", [2, 3, 1_000])
def test_several_hands_find_what_one_finds(
    strips: SampleRuns, function: str, several: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = np.full(STEPS.count, 0.5)
    alone = windows.sweep(function, strips, STEPS, 300_000, half)
    asked: list[int] = []

    def counted(parts: list[Callable[[], bool]]) -> list[bool]:
        asked.append(len(parts))
        return request_threads.run_parallel(parts)

    monkeypatch.setattr(windows, "_SHARED_FROM", 0)
    monkeypatch.setattr(windows, "thread_count", lambda: several)
    monkeypatch.setattr(windows, "run_parallel", counted)
    together = windows.sweep(function, strips, STEPS, 300_000, half)
    assert asked[0] == several
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one[alone[1]], other[alone[1]])
    assert alone[1].any()


def test_what_a_hand_raises_is_raised_when_all_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_threads, "thread_count", lambda: 2)
    begun, ended = threading.Event(), threading.Event()

    def mine() -> None:
        assert begun.wait(60)
        raise ValueError("mine")

    def others() -> None:
        begun.set()
        ended.wait(0.2)
        ended.set()

    with pytest.raises(ValueError, match="mine"):
        request_threads.run_parallel([mine, others])
    assert ended.is_set()


def test_what_no_hand_has_begun_is_done_by_who_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_threads, "thread_count", lambda: 2)
    free = threading.Event()
    busy = request_threads._pool().submit(free.wait, 60)
    try:
        assert request_threads.run_parallel([threading.get_ident, threading.get_ident]) == [threading.get_ident()] * 2
    finally:
        free.set()
        busy.result()
