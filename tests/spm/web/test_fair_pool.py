"""Claims about spm/web/fair_pool.py: bounds hold, no turn is lost whatever happens when, and keys take turns."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from spm.clock import SystemClock
from spm.web.fair_pool import FairPool, PoolClosed, PoolFull, WaitedTooLong
from tests.support.event_loop import OwnLoop, on_loop

THREADS, THREADS_MAX, OF_KEY, WAITING, OF_KEY_WAITING = 3, 4, 2, 12, 5


def pool(threads: int = THREADS, spare: int = 0, of_key: int = OF_KEY, waiting: int = 20_000) -> FairPool:
    return FairPool(
        "tests",
        threads=threads,
        threads_max=threads + spare,
        per_key_max=of_key,
        waiting_max=waiting,
        per_key_waiting_max=waiting,
    )


class Jobs:
    """Stands for the threads: a job runs until the test ends it."""

    def __init__(self) -> None:
        self.running: list[tuple[Hashable, Future[Any]]] = []
        self.began: list[Hashable] = []

    def submit(self, work: Callable[[], Hashable]) -> "Future[Any]":
        """Begin a job; ``work`` names its key."""
        key, job = work(), Future[Any]()
        self.running.append((key, job))
        self.began.append(key)
        return job

    def end(self, place: int = 0, error: BaseException | None = None) -> None:
        """End a running job."""
        _, job = self.running.pop(place)
        if error is None:
            job.set_result("done")
        else:
            job.set_exception(error)

    def shutdown(self, **_: object) -> None:
        """Nothing ends by itself."""


def by_hand(fair: FairPool) -> Jobs:
    """Let the test decide when the pool's jobs end."""
    fair._executor.shutdown()
    jobs = Jobs()
    fair._executor = jobs  # type: ignore[assignment]
    return jobs


async def settled(turns: int = 6) -> None:
    """Let everything happen that is due."""
    for _ in range(turns):
        await asyncio.sleep(0)


class AnyOrder(RuleBasedStateMachine):
    """Requests of some keys come, end, fail, are cancelled and time out in any order, between any two loop turns."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = OwnLoop()
        self.pool = FairPool(
            "tests",
            threads=THREADS,
            threads_max=THREADS_MAX,
            per_key_max=OF_KEY,
            waiting_max=WAITING,
            per_key_waiting_max=OF_KEY_WAITING,
        )
        self.jobs = by_hand(self.pool)
        self.tasks: list[asyncio.Task[Any]] = []
        self.closed = False

    def turns(self, count: int) -> None:
        self.loop.run(settled(count))

    @rule(key=st.integers(0, 4), wait_s=st.sampled_from([None, None, 0.0]))
    def request(self, key: int, wait_s: float | None) -> None:
        async def begin() -> None:
            self.tasks.append(asyncio.create_task(self.pool.run(key, lambda: key, wait_s=wait_s)))

        self.loop.run(begin())

    @rule(count=st.integers(1, 4))
    def loop_turns(self, count: int) -> None:
        self.turns(count)

    @precondition(lambda self: self.jobs.running)
    @rule(place=st.integers(0, 99), error=st.sampled_from([None, None, ValueError(), StopIteration(), SystemError()]))
    def job_ends(self, place: int, error: BaseException | None) -> None:
        self.jobs.end(place % len(self.jobs.running), error)

    @precondition(lambda self: self.tasks)
    @rule(place=st.integers(0, 99))
    def client_leaves(self, place: int) -> None:
        self.tasks[place % len(self.tasks)].cancel()

    @precondition(lambda self: len(self.tasks) > 8)
    @rule()
    def close(self) -> None:
        self.closed = True
        self.pool.close()

    @invariant()
    def bounds_hold(self) -> None:
        assert self.pool.running <= THREADS_MAX
        assert max(self.pool._running.values(), default=0) <= OF_KEY
        assert self.pool.running == self.pool._running.total()
        assert len(self.jobs.running) <= self.pool.running
        assert self.pool.waiting == sum(map(len, self.pool._queues.values())) <= WAITING
        assert all(0 < len(queue) <= OF_KEY_WAITING for queue in self.pool._queues.values())

    @invariant()
    def no_thread_is_free_while_a_request_waits_for_it(self) -> None:
        self_ = self.pool
        waits = {key for key, queue in self_._queues.items() if any(not each.turn.done() for each in queue)}
        if self_.running < THREADS:
            assert all(self_._running[key] >= OF_KEY for key in waits)
        if self_.running < THREADS_MAX:
            assert all(self_._running[key] for key in waits)

    def teardown(self) -> None:
        self.turns(9)
        while self.jobs.running:
            self.jobs.end()
            self.turns(9)
        assert all(task.done() for task in self.tasks), "a turn was lost"
        assert (self.pool.running, self.pool.waiting, dict(self.pool._running)) == (0, 0, {})
        assert not any((self.pool._queues, self.pool._idle_keys, self.pool._busy_keys))
        for task in self.tasks:
            error = asyncio.CancelledError() if task.cancelled() else task.exception()
            expected = (ValueError, RuntimeError, SystemError, PoolFull, WaitedTooLong, asyncio.CancelledError)
            assert error is None or isinstance(error, (*expected, PoolClosed) if self.closed else expected)
        self.loop.close()


AnyOrder.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestAnyOrder = AnyOrder.TestCase


def test_real_threads_are_never_more_than_the_bounds_say() -> None:
    lock, now, most, of_key = threading.Lock(), Counter[Hashable](), Counter[str](), Counter[Hashable]()

    def work(key: int) -> int:
        with lock:
            now[key] += 1
            most["all"] = max(most["all"], now.total())
            of_key[key] = max(of_key[key], now[key])
        SystemClock().sleep(0.002)
        with lock:
            now[key] -= 1
        return key

    async def many() -> list[int]:
        fair = pool(spare=2)
        answers = await asyncio.gather(*(fair.run(i % 7, lambda i=i: work(i % 7)) for i in range(300)))  # type: ignore[misc]
        assert (fair.running, fair.waiting) == (0, 0)
        fair.close()
        return answers

    assert on_loop(many()) == [i % 7 for i in range(300)]
    assert THREADS <= most["all"] <= THREADS + 2
    assert max(of_key.values()) <= OF_KEY


def test_a_key_with_a_thousand_waiting_requests_delays_another_keys_first_one_by_one_turn() -> None:
    async def act() -> list[Hashable]:
        fair = pool(threads=2)
        jobs = by_hand(fair)
        tasks = [asyncio.create_task(fair.run("loud", lambda: "loud")) for _ in range(1_000)]
        await settled()
        tasks.append(asyncio.create_task(fair.run("quiet", lambda: "quiet")))
        await settled()
        for _ in range(4):
            jobs.end()
            await settled()
        for task in tasks:
            task.cancel()
        return jobs.began

    assert "quiet" in on_loop(act())[2:4]


def test_keys_take_turns_however_many_requests_each_of_them_has() -> None:
    async def act() -> list[Hashable]:
        fair = pool(threads=1)
        jobs = by_hand(fair)
        wanted = {"a": 50, "b": 20, "c": 5}
        tasks = [asyncio.create_task(fair.run(k, lambda k=k: k)) for k, n in wanted.items() for _ in range(n)]  # type: ignore[misc]
        await settled()
        while jobs.running:
            jobs.end()
            await settled()
        await asyncio.gather(*tasks)
        return jobs.began

    began = on_loop(act())
    assert all(began[at : at + 3].count("c") == 1 for at in range(1, 13, 3))
    assert all({first, second} == {"a", "b"} for first, second in pairwise(began[16:40]))


def test_threads_beyond_the_first_of_each_key_go_round_too() -> None:
    async def act() -> Counter[Hashable]:
        fair = pool(threads=8, of_key=4)
        jobs = by_hand(fair)
        tasks = [asyncio.create_task(fair.run(k, lambda k=k: k)) for k in "abcd" for _ in range(100)]  # type: ignore[misc]
        await settled()
        for _ in range(200):
            jobs.end()
            await settled(3)
        for task in tasks:
            task.cancel()
        return Counter(jobs.began)

    counts = on_loop(act())
    assert max(counts.values()) - min(counts.values()) <= 4


def test_a_key_of_which_nothing_runs_gets_a_spare_thread_and_one_that_runs_does_not() -> None:
    async def act() -> list[Hashable]:
        fair = pool(threads=2, spare=1)
        jobs = by_hand(fair)
        tasks = [asyncio.create_task(fair.run(key, lambda key=key: key)) for key in "aaabb"]  # type: ignore[misc]
        await settled()
        for task in tasks:
            task.cancel()
        return list(jobs.began)

    assert on_loop(act()) == ["a", "a", "b"]


def test_a_request_that_is_cancelled_in_the_moment_of_its_turn_gives_the_turn_on() -> None:
    async def act() -> tuple[int, list[Hashable]]:
        fair = pool(threads=1)
        jobs = by_hand(fair)
        first, second, third = (asyncio.create_task(fair.run(key, lambda key=key: key)) for key in "aab")  # type: ignore[misc]
        await settled()
        second.cancel()  # its future is cancelled at once, its task runs later
        jobs.end()
        await settled()
        assert jobs.began == ["a", "b"]
        jobs.end()
        await asyncio.gather(first, third)
        return fair.running, jobs.began

    assert on_loop(act()) == (0, ["a", "b"])


def test_a_request_that_is_cancelled_right_after_its_turn_came_gives_it_back() -> None:
    async def act() -> None:
        fair = pool(threads=1)
        jobs = by_hand(fair)
        tasks = [asyncio.create_task(fair.run(key, lambda key=key: key)) for key in "aab"]  # type: ignore[misc]
        await settled()
        jobs.end()
        asyncio.get_running_loop().call_soon(tasks[1].cancel)  # after the end of the job, before the task goes on
        asyncio.get_running_loop().call_soon(tasks[2].cancel)
        await settled()
        assert (fair.running, fair.waiting, jobs.began) == (0, 0, ["a"])
        assert await tasks[0] == "done"

    on_loop(act())


def test_a_running_request_whose_client_left_holds_its_thread_until_its_work_ends() -> None:
    async def act() -> None:
        fair = pool(threads=1)
        jobs = by_hand(fair)
        left = asyncio.create_task(fair.run("a", lambda: "a"))
        await settled()
        left.cancel()
        await settled()
        assert (left.cancelled(), fair.running) == (True, 1)
        jobs.end(error=ValueError("nobody hears it"))
        await settled()
        assert fair.running == 0

    on_loop(act())


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("a", "2 requests of one user wait for a thread for tests already, and no more may"),
        ("c", "3 requests of all users wait for a thread for tests already, and no more may"),
    ],
    ids=["of one key", "in all"],
)
def test_one_request_too_many_is_refused_at_once_with_the_limit_and_its_size(key: str, text: str) -> None:
    async def act() -> None:
        fair = FairPool("tests", threads=1, threads_max=1, per_key_max=1, waiting_max=3, per_key_waiting_max=2)
        by_hand(fair)
        tasks = [asyncio.create_task(fair.run(each, lambda: "a")) for each in "aaab"]
        await settled()
        with pytest.raises(PoolFull) as caught:
            await fair.run(key, lambda: "never")
        assert str(caught.value) == text
        for task in tasks:
            task.cancel()

    on_loop(act())


def test_a_request_waits_no_longer_than_it_may_and_is_forgotten_then() -> None:
    async def act() -> None:
        fair = pool(threads=1)
        jobs = by_hand(fair)
        first = asyncio.create_task(fair.run("a", lambda: "a"))
        await settled()
        with pytest.raises(WaitedTooLong, match=r"no thread for tests was free within 0\.02 s"):
            await fair.run("b", lambda: "b", wait_s=0.02)
        assert (fair.waiting, fair._queues) == (0, {})
        jobs.end()
        assert await first == "done"
        assert jobs.began == ["a"]

    on_loop(act())


def test_a_closed_pool_ends_those_who_wait_and_takes_nobody() -> None:
    async def act() -> None:
        fair, go = pool(threads=1), threading.Event()
        running = asyncio.create_task(fair.run("a", lambda: go.wait(10)))
        waiting = asyncio.create_task(fair.run("a", lambda: True))
        await settled()
        fair.close()
        with pytest.raises(PoolClosed):
            await waiting
        with pytest.raises(PoolClosed):
            await fair.run("b", lambda: True)
        go.set()
        assert await running is True
        assert (fair.running, fair.waiting) == (0, 0)

    on_loop(act())


@pytest.mark.timed
def test_a_turn_costs_as_much_with_ten_thousand_waiting_as_with_few() -> None:
    async def seconds(waiting: int) -> float:
        fair = pool(threads=4, of_key=2)
        jobs = by_hand(fair)
        keys = ["loud", "loud", *(number % 997 for number in range(waiting))]
        tasks = [asyncio.create_task(fair.run(key, lambda key=key: key)) for key in keys]  # type: ignore[misc]
        await settled()
        begun = SystemClock().monotonic()
        for task in tasks[waiting // 2 :]:  # clients leave
            task.cancel()
        await settled()
        left = SystemClock().monotonic() - begun
        begun = SystemClock().monotonic()
        for _ in range(200):
            jobs.end()
            await settled(3)
        ended = SystemClock().monotonic() - begun
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return left / waiting * 1_000 + ended

    few, many = on_loop(seconds(500)), on_loop(seconds(10_000))
    assert many < 8 * few + 0.05
