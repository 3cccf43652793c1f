"""Due times and pauses."""

from hypothesis import given
from hypothesis import strategies as st

from ingest.agent.schedule import backoff_s, next_due_ms, phase_ms

PERIOD = 10_000


@given(st.integers(10**12, 2 * 10**12), st.integers(0, PERIOD - 1), st.lists(st.integers(0, 3_000), max_size=30))
def test_due_times_never_drift_however_late_each_collection_is(now: int, phase: int, delays: list[int]) -> None:
    due = 0
    for delay in delays:
        due = next_due_ms(now, last_due_ms=due, period_ms=PERIOD, phase=phase)
        assert due % PERIOD == phase
        assert now < due <= now + PERIOD
        now = due + delay


def test_an_early_wake_up_is_not_a_second_collection() -> None:
    assert next_due_ms(19_998, last_due_ms=20_000, period_ms=PERIOD, phase=0) == 30_000


def test_a_clock_set_back_an_hour_stops_no_collection() -> None:
    assert next_due_ms(1_000, last_due_ms=3_600_000, period_ms=PERIOD, phase=0) == 10_000


def test_hosts_spread_over_the_period() -> None:
    phases = [phase_ms(f"host-{number}", PERIOD) for number in range(200)]
    assert len({phase // 1_000 for phase in phases}) == 10
    assert phase_ms("host-1", PERIOD) == phases[1]


def test_pauses_double_up_to_the_bound_and_heed_the_server() -> None:
    def wait(failures: int, requested_s: float | None = None) -> float:
        return backoff_s(failures, base_s=1, most_s=60, requested_s=requested_s)

    assert [wait(failures) for failures in (1, 2, 3, 7, 10_000)] == [1, 2, 4, 60, 60]
    assert wait(1, requested_s=30) == 30
    assert wait(1, requested_s=86_400) == 60
