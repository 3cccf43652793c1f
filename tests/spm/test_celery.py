"""Claims about spm/celery.py: beat wakes when a task is due, and seldom else; no kind of task takes all threads."""

import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from celery.beat import ScheduleEntry
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from pytest_django.plugin import DjangoDbBlocker

from spm.celery import Metered, PunctualScheduler
from spm.celery import app as worker_app
from spm.clock import SystemClock
from spm.worker import THREADS

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
    assert scheduler.sent_s[-1] - begun >= ROUNDS * (PERIOD_S - 0.01)  # Celery wakes up 10 ms early, each time


@pytest.fixture
def database(tmp_path: Path, django_db_blocker: DjangoDbBlocker) -> Iterator[BaseDatabaseWrapper]:
    """A database of a file in a thread's connections, as a worker's tasks have it."""
    before = connections[DEFAULT_DB_ALIAS]
    own = before.copy()
    own.settings_dict = {
        **before.settings_dict,
        "NAME": str(tmp_path / "own.sqlite3"),
        "CONN_MAX_AGE": 60,
        "OPTIONS": {},
    }
    connections[DEFAULT_DB_ALIAS] = own
    with django_db_blocker.unblock():
        yield own
        own.close()
    connections[DEFAULT_DB_ALIAS] = before


def test_a_task_finds_the_database_connection_of_the_one_before(database: BaseDatabaseWrapper) -> None:
    fixup = worker_app._fixups[0].worker_fixup
    task = SimpleNamespace(request=SimpleNamespace(is_eager=False))
    database.ensure_connection()
    opened = database.connection
    fixup.on_task_postrun(sender=task)
    fixup.on_task_prerun(sender=task)
    assert opened is not None
    assert database.connection is opened
    database.close_at = 0.0  # it is too old
    fixup.on_task_prerun(sender=task)
    assert database.connection is None


def test_a_tick_that_comes_while_the_one_before_is_at_work_ends_at_once() -> None:
    app, runs = Celery("claims of ticks", task_cls=Metered, set_as_current=False), list[str]()

    @app.task(name="claims.slow")  # type: ignore[untyped-decorator]
    def slow() -> None:
        runs.append("slow")
        slow()

    @app.task(name="claims.twice", at_once_max=2)  # type: ignore[untyped-decorator]
    def twice() -> None:
        runs.append("twice")
        twice()

    for _ in range(2):
        slow()
    twice()
    assert runs == ["slow", "slow", "twice", "twice"]


def test_a_task_that_fails_is_no_longer_at_work() -> None:
    app = Celery("claims of faults", task_cls=Metered, set_as_current=False)

    @app.task(name="claims.failing")  # type: ignore[untyped-decorator]
    def failing() -> None:
        raise ValueError

    for _ in range(2):
        with pytest.raises(ValueError):  # noqa: PT011
            failing()


def test_all_tasks_that_may_be_at_work_at_once_have_threads() -> None:
    names = {entry["task"].rpartition(".") for entry in worker_app.conf.beat_schedule.values()}
    tasks = [getattr(import_module(module), name) for module, _, name in names]
    assert sum(task.at_once_max for task in tasks) <= THREADS


def test_a_worker_knows_every_task_that_is_scheduled() -> None:
    """In a process of its own: here other tests have loaded modules that a worker does not."""
    program = "from spm.celery import app; app.loader.import_default_modules(); print(*app.tasks)"
    known = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert {entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()} - set(known) == set()
