"""Claims about parts of a query on threads: equal numbers, errors after all have ended, no wait for a thread."""

import os
import threading
from collections.abc import Callable

import numpy as np
import pytest

from spm.clock import FakeClock
from spm.limits import QUERY_SHORT_S
from spm.query.promql.kernels import windows
from spm.query.promql.kernels.windows import Steps
from spm.query.request import threads as request_threads
from spm.query.request.pacing import QueryPacer
from spm.query.samples.sample_runs import SampleRuns
from tests.spm.query.promql.generated import START, dataset, stored

STEPS = Steps(START + 60_000, 37_000, 40)


@pytest.fixture
def runs() -> SampleRuns:
    return stored(dataset(3, low_counters=True)).select_runs([], START - 1, START + 10**8)


@pytest.mark.parametrize("function", ["avg_over_time", "max_over_time", "rate", "quantile_over_time"])
@pytest.mark.parametrize("several", [2, 3, 1_000])
def test_several_threads_compute_what_one_computes(
    runs: SampleRuns, function: str, several: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = np.full(STEPS.count, 0.5)
    alone = windows.sweep(function, runs, STEPS, 300_000, half)
    part_counts: list[int] = []

    def counted(parts: list[Callable[[], bool]]) -> list[bool]:
        part_counts.append(len(parts))
        return request_threads.run_parallel(parts)

    monkeypatch.setattr(windows, "_ASIDE_FROM", 0)
    monkeypatch.setattr(windows, "_SHARED_FROM", 0)
    monkeypatch.setattr(windows, "thread_count", lambda: several)
    monkeypatch.setattr(windows, "run_parallel", counted)
    together = windows.sweep(function, runs, STEPS, 300_000, half)
    assert part_counts[0] == several
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one[alone[1]], other[alone[1]])
    assert alone[1].any()


@pytest.mark.parametrize("is_long", [False, True], ids=["a short query", "a long one"])
def test_an_error_of_a_part_is_raised_when_all_parts_have_ended(
    monkeypatch: pytest.MonkeyPatch, *, is_long: bool
) -> None:
    monkeypatch.setattr(request_threads, "thread_count", lambda: 2)
    monkeypatch.setattr(QueryPacer, "is_long", is_long)
    started, ended = threading.Event(), threading.Event()

    def own() -> None:
        assert started.wait(60)
        raise ValueError("mine")

    def others() -> None:
        started.set()
        ended.wait(0.2)
        ended.set()

    with pytest.raises(ValueError, match="mine"):
        request_threads.run_parallel([own, others])
    assert ended.is_set()


def test_a_part_that_no_thread_has_started_is_run_by_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_threads, "thread_count", lambda: 2)
    free = threading.Event()
    busy = request_threads._pool("query", 1).submit(free.wait, 60)
    try:
        assert request_threads.run_parallel([threading.get_ident, threading.get_ident]) == [threading.get_ident()] * 2
    finally:
        free.set()
        busy.result()


def test_parts_of_a_long_query_leave_the_processors_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock(0)
    pacer = QueryPacer(clock, parallel=1, cpu_s=clock.monotonic)
    monkeypatch.setattr(request_threads, "process_pacer", lambda: pacer)

    def nice() -> int:
        return os.getpriority(os.PRIO_PROCESS, 0)

    own = nice()
    with pacer.query("an organisation"):
        assert request_threads.run_parallel([nice]) == [own]
        clock.advance(int(1_000 * QUERY_SHORT_S) + 1)
        pacer.tick()
        parts = request_threads.run_parallel([nice, nice, nice])
        assert parts == [min(19, own + request_threads._NICE)] * 3
    assert nice() == own
    assert request_threads.run_parallel([nice]) == [own]


@pytest.mark.parametrize(("windows_a_sample", "goes_aside"), [(1, False), (2_000, True)])
def test_a_long_query_wakes_a_thread_for_long_sweeps_only(
    runs: SampleRuns, windows_a_sample: int, monkeypatch: pytest.MonkeyPatch, *, goes_aside: bool
) -> None:
    monkeypatch.setattr(QueryPacer, "is_long", True)
    own, threads = threading.get_ident(), set[int]()
    go_on = windows._SeriesSweep.go_on

    def noted(sweep: windows._SeriesSweep) -> bool:
        threads.add(threading.get_ident())
        return go_on(sweep)

    monkeypatch.setattr(windows._SeriesSweep, "go_on", noted)
    steps = Steps(START + 60_000, 1_000, 400)
    windows.sweep("max_over_time", runs, steps, windows_a_sample * steps.step_ms, np.zeros(steps.count))
    assert (own not in threads) == goes_aside, f"{runs.samples} samples"
