"""The Celery application: control tasks only (rules, outbox, rollups), never truth.

Any broker may lose or repeat a task; every task here asks the database or the store what is due, so that the next tick
makes good what a lost one left. Loaded by ``spm.apps``; enter by ``app``. ``--beat-thread`` makes a worker send the
schedule's tasks too. When ``SPM_TRANSPORT`` is ``amqp``, a worker also consumes messages, through the bootstep that the
setting ``SPM_CONSUMER_STEP`` names.
"""

from importlib import import_module
from typing import Any

from celery import Celery, bootsteps
from celery.beat import EmbeddedService
from click import Option
from django.conf import settings

from spm import folder_broker


class BeatThread(bootsteps.StartStopStep):  # type: ignore[misc]  # Celery has no types
    """Beat as a thread of the worker.

    Celery's own ``--beat`` forks a process that holds all that the worker has loaded, to sleep five seconds at a time.
    The schedule stays in memory: every entry is due within seconds, and a schedule file can be torn by a crash.
    """

    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: Any, beat_thread: bool = False, **options: Any) -> None:
        super().__init__(worker, **options)
        self.enabled = beat_thread

    def create(self, worker: Any) -> Any:
        """The thread; it looks up at least once a second, so that a stop need not wait for it."""
        return EmbeddedService(worker.app, thread=True, scheduler_cls="celery.beat:Scheduler")


folder_broker.install()
app = Celery("spm")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
app.user_options["worker"].add(Option(["--beat-thread"], is_flag=True, help="Send the schedule's tasks too."))
app.steps["worker"].add(BeatThread)

if settings.SPM_TRANSPORT == "amqp":
    _module, _, _name = settings.SPM_CONSUMER_STEP.partition(":")
    app.steps["worker"].add(getattr(import_module(_module), _name))
