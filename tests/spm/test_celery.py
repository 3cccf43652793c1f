"""Claims about spm/celery.py: the thread that sends scheduled tasks wakes when one is due, and seldom else."""

from typing import Any

import pytest
from celery import Celery
from celery.beat import ScheduleEntry

from spm.celery import PunctualScheduler
from spm.clock import SystemClock

PERIOD_S, ROUNDS = 0.3, 3


class Noting(PunctualScheduler):
    """Notes when tasks are sent, instead of sending them."""

    sent_s: list[float]
    producer = None  # no broker

    def apply_entry(self, entry: ScheduleEntry, producer: Any = None) -> None:
        """Note the time."""
        self.sent_s.append(SystemClock().monotonic())


@pytest.fixture
def scheduler() -> Noting:
    app = Celery("claims", set_as_current=False)
    app.conf.timezone = "UTC"
    app.conf.beat_schedule = {"one": {"task": "claims.one", "schedule": PERIOD_S}}
    one = Noting(app, max_interval=1)
    one.sent_s = []
    return one


def test_beat_looks_a_few_times_for_each_task_and_sends_it_in_time(scheduler: Noting) -> None:
    clock, looks = SystemClock(), 0
    begun = clock.monotonic()
    while len(scheduler.sent_s) < ROUNDS:
        looks += 1
        wait_s = scheduler.tick()
        if wait_s and wait_s > 0:
            clock.sleep(wait_s)
    assert looks <= 6 * ROUNDS
    assert scheduler.sent_s[-1] - begun >= ROUNDS * PERIOD_S - 0.01
