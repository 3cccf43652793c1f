"""When a worker calls the others, for any course of its day; and what a share is then."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.transport import topology
from ingest.transport.help_calls import HelpSignal
from ingest.worker.inbox import Idle
from spm import limits
from spm.clock import FakeClock

QUEUES = topology.Address("", 16).queues()


@dataclass(slots=True)
class Day:
    """One worker, looked at once a second."""

    clock: FakeClock = field(default_factory=FakeClock)
    idle_s: float = 0.0
    calling: HelpSignal = field(init=False)

    def __post_init__(self) -> None:
        self.calling = HelpSignal(lambda: self.idle_s, self.clock)

    def seconds(self, count: int, *, busy: float, sharing: int = 2, behind: int = 0) -> list[bool]:
        """Whether it calls, after each of so many seconds."""
        return [self._second(busy, sharing, behind) for _ in range(count)]

    def _second(self, busy: float, sharing: int, behind: int) -> bool:
        self.clock.advance(1_000)
        self.idle_s += 1 - busy
        return self.calling.should_call(sharing, {"a": behind})


def test_a_worker_that_has_nothing_but_work_calls_within_two_seconds() -> None:
    assert Day().seconds(2, busy=1.0) == [False, True]


def test_a_worker_whose_queue_grows_calls_at_once() -> None:
    assert Day().seconds(1, busy=0.0, behind=limits.AMQP_CALL_BEHIND + 1) == [True]


def test_one_slow_write_is_no_call() -> None:
    day = Day()
    assert not any(day.seconds(1, busy=1.0) + day.seconds(60, busy=0.1))


def test_a_call_is_over_when_the_few_would_be_half_idle_for_a_while() -> None:
    day = Day()
    day.seconds(10, busy=1.0)
    for_long = round(limits.AMQP_CALM_S)
    assert all(day.seconds(for_long, busy=0.02, sharing=16))
    assert not day.seconds(20, busy=0.02, sharing=16)[-1]


def test_a_call_goes_on_while_only_the_help_of_many_leaves_time() -> None:
    day = Day()
    day.seconds(10, busy=1.0)
    assert all(day.seconds(600, busy=0.2, sharing=16))


def test_a_call_goes_on_while_its_end_would_make_the_few_half_as_busy_as_a_call_takes() -> None:
    for busy, over in ((limits.AMQP_CALL_BUSY * 0.45, True), (limits.AMQP_CALL_BUSY * 0.55, False)):
        day = Day()
        day.seconds(10, busy=1.0)
        assert day.seconds(300, busy=busy, sharing=limits.AMQP_CALM_WORKERS)[-1] is not over


@given(st.lists(st.tuples(st.floats(0, 1), st.integers(1, 32)), min_size=1, max_size=200))
def test_a_call_lasts_as_long_as_calm_must_last_at_least(course: list[tuple[float, int]]) -> None:
    day = Day()
    said = [day.seconds(1, busy=busy, sharing=sharing)[0] for busy, sharing in course]
    length = 0
    for calls, following in zip(said, [*said[1:], True], strict=True):
        length = length + 1 if calls else 0
        assert not calls or following or length >= limits.AMQP_CALM_S


@given(st.sets(st.integers(0, 31), min_size=1), st.booleans())
def test_every_queue_is_consumed_by_exactly_one_worker(seats: set[int], called: bool) -> None:
    sharing = topology.sharing(list(seats), called=called)
    shares = [topology.share(QUEUES, sharing, own) for own in seats]
    assert sorted(name for mine in shares for name in mine) == sorted(queue.name for queue in QUEUES)
    assert sum(map(bool, shares)) == min(len(seats if called else sharing), len(QUEUES))
    assert len(sharing) == (len(seats) if called else min(len(seats), limits.AMQP_CALM_WORKERS))


@pytest.mark.parametrize("asked_s", [0.0, 2.5])
def test_idle_time_counts_the_present_wait_too(asked_s: float) -> None:
    clock = FakeClock()
    idle = Idle(clock)
    with idle.waiting():
        clock.advance(1_000)
    clock.advance(5_000)
    with idle.waiting():
        clock.advance(round(asked_s * 1000))
        assert idle.seconds() == pytest.approx(1 + asked_s)
    assert idle.seconds() == pytest.approx(1 + asked_s)
