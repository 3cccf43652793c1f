"""Claims about spm/celery.py: the thread that sends scheduled tasks wakes when one is due, and seldom else."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from celery.beat import ScheduleEntry
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from pytest_django.plugin import DjangoDbBlocker

from spm.celery import PunctualScheduler
from spm.celery import app as worker_app
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
