"""The Celery application: control tasks only (rules, outbox, rollups), never data.

Any broker may lose or repeat a task. Every task here asks the database or the store what is due, so the next tick does
what a lost one left undone. Only workers load this module (``spm.worker``); one of them sends the scheduled tasks too.
Enter by ``app``. When ``SPM_TRANSPORT`` is ``amqp``, a worker also consumes messages, through the bootstep that the
setting ``SPM_CONSUMER_STEP`` names.
"""

import os
from collections import Counter
from functools import cached_property
from importlib import import_module
from threading import Lock
from typing import Any

from celery import Celery, Task, bootsteps
from celery.beat import EmbeddedService, Scheduler
from celery.fixups.django import DjangoFixup, DjangoWorkerFixup
from django.conf import settings
from django.db import close_old_connections

from spm import folder_broker, telemetry
from spm.clock import SystemClock


class PunctualScheduler(Scheduler):  # type: ignore[misc]
    """Sleeps until a task is due.

    Celery's own wakes 10 ms before, and looks again and again until it is time: with a task each second, 1 % of a core.
    """

    def adjust(self, n: float | None, drift: float = 0.0) -> float | None:
        """Return the time until a task is due, in seconds, as it is."""
        return n


class BeatThread(bootsteps.StartStopStep):  # type: ignore[misc]  # Celery has no types
    """Runs beat as a thread of the worker.

    Celery's own ``--beat`` forks a process that holds all that the worker has loaded, and sleeps for seconds at a time.
    The schedule stays in memory: every entry is due within seconds, and a crash can tear a schedule file.
    """

    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: Any, beat_thread: bool = False, **options: Any) -> None:
        super().__init__(worker, **options)
        self.enabled = beat_thread

    def create(self, worker: Any) -> Any:
        """Returns the thread; it looks for due tasks at least once a second, so that a stop need not wait for it."""
        return EmbeddedService(worker.app, thread=True, scheduler_cls=PunctualScheduler)


class OwnMetrics(bootsteps.StartStopStep):  # type: ignore[misc]
    """Runs the thread that sends the worker's own metrics, unless the settings switch it off."""

    requires = ("celery.worker.components:Pool",)

    def create(self, worker: Any) -> Any:
        """By name: its models need Django's applications."""
        return import_module("ingest.system_series.process_metrics").metrics_thread("worker")


class LastingConnections(DjangoWorkerFixup):  # type: ignore[misc]
    """Leaves each thread its database connection between two tasks, until Django takes it for too old or broken.

    Celery's own closes it before and after each task. Tasks are due each second, and to open the database costs more
    than most of them do.
    """

    def close_database(self, **_named: Any) -> None:
        """Closes what Django would close at the end of a request."""
        close_old_connections()


class Fixup(DjangoFixup):  # type: ignore[misc]
    """Joins Celery and Django, with connections that last."""

    @cached_property
    def worker_fixup(self) -> LastingConnections:
        """What closes connections in a worker; made when it is needed, since it reads the settings."""
        return LastingConnections(self.app)


class Metered(Task):  # type: ignore[misc]
    """A task that is counted and timed by its name and outcome.

    Of one kind at most ``at_once_max`` run in a process. One more returns at once, and the next tick does its work: so
    the ticks that follow a slow one do not take the threads of all other tasks.
    """

    abstract = True
    at_once_max = 1

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if not _running.begin(self.name, self.at_once_max):
            return None
        try:
            with telemetry.timed(telemetry.TASK_S, self.name):
                outcome = super().__call__(*arguments, **named)
        finally:
            _running.end(self.name)
        telemetry.TASK_LAST.labels(self.name).set(_clock.now_ms() / 1000)
        return outcome


class _RunningTasks:
    """How many tasks of each kind run in this process."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = Lock()

    def begin(self, name: str, at_once_max: int) -> bool:
        """Count one more, unless there are as many as may be."""
        with self._lock:
            if self._counts[name] >= at_once_max:
                return False
            self._counts[name] += 1
            return True

    def end(self, name: str) -> None:
        """Count one less."""
        with self._lock:
            self._counts[name] -= 1


os.environ.setdefault("CELERY_SKIP_CHECKS", "1")  # they load every page; ``migrate`` has made them before any worker
folder_broker.install()
_clock = SystemClock()
_running = _RunningTasks()
app = Celery("spm", task_cls=Metered, fixups=[lambda app: Fixup(app).install()])
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
app.autodiscover_tasks(["spm.backup"])  # no app of Django: it has no tables
app.steps["worker"].update((BeatThread, OwnMetrics))

if settings.SPM_TRANSPORT == "amqp":
    _module, _, _name = settings.SPM_CONSUMER_STEP.partition(":")
    app.steps["worker"].add(getattr(import_module(_module), _name))
