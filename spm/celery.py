"""The Celery application: control tasks only (rules, outbox, rollups), never truth.

Any broker may lose or repeat a task; every task here asks the database or the store what is due, so that the next tick
makes good what a lost one left. Loaded by ``spm.apps``; enter by ``app``. When ``SPM_TRANSPORT`` is ``amqp``, the
worker also consumes messages, through the bootstep that the ``SPM_CONSUMER_STEP`` setting names.
"""

from importlib import import_module

from celery import Celery
from django.conf import settings

app = Celery("spm")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()

if settings.SPM_TRANSPORT == "amqp":
    _module, _, _name = settings.SPM_CONSUMER_STEP.partition(":")
    app.steps["consumer"].add(getattr(import_module(_module), _name))
