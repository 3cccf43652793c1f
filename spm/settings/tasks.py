"""Settings of Celery: the broker, and beat's schedule.

The default broker is a folder, so that one machine needs no server. It may lose or repeat a task. For this reason tasks
carry no data and expire before their next tick: after a pause one task runs, not all that were missed.
"""

from datetime import UTC, datetime
from typing import Any

from cronsim import CronSim, CronSimError
from django.core.exceptions import ImproperlyConfigured

from spm import limits
from spm.settings.environment import DATA, env

_FOLDER = DATA / "celery"

CELERY_BROKER_URL: str = env.str("SPM_CELERY_BROKER_URL", "filesystem://localhost")
CELERY_BROKER_TRANSPORT_OPTIONS: dict[str, Any] = {}
if CELERY_BROKER_URL.startswith("filesystem"):
    for _name in ("queue", "control"):
        (_FOLDER / _name).mkdir(parents=True, exist_ok=True)
    CELERY_BROKER_TRANSPORT_OPTIONS = {
        "data_folder_in": str(_FOLDER / "queue"),
        "data_folder_out": str(_FOLDER / "queue"),
        "control_folder": str(_FOLDER / "control"),
        "polling_interval": 0.5,
    }
elif CELERY_BROKER_URL.startswith("amqp"):
    # Without this a message that the broker refuses is lost without an error.
    CELERY_BROKER_TRANSPORT_OPTIONS = {"confirm_publish": True}
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_SERIALIZER = "json"
CELERY_RESULT_SERIALIZER = "json"
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_STORE_ERRORS_EVEN_IF_IGNORED = False
CELERY_TIMEZONE = "UTC"
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_ENABLE_REMOTE_CONTROL = False
CELERY_WORKER_PREFETCH_MULTIPLIER = 1


def _every(seconds: int, task: str) -> dict[str, Any]:
    return {"task": task, "schedule": seconds, "options": {"expires": seconds}}


CELERY_BEAT_SCHEDULE = {
    "evaluate rules": _every(2, "alerts.tasks.evaluate_rules"),
    "relay events": _every(2, "spm.events.tasks.relay_events"),
    "prune events": _every(60, "spm.events.tasks.prune_events"),
    "prune alerts": _every(60, "alerts.tasks.prune_alerts"),
    "deliver the outbox": _every(5, "alerts.tasks.deliver_outbox"),
    "refresh Alertmanagers": _every(5, "alerts.tasks.refresh_alertmanagers"),
    "report noise": _every(60, "alerts.tasks.report_noise"),
    "keep marks": _every(limits.KEEP_EVERY_S, "ingest.tasks.keep_marks"),
    "consider a run": _every(30, "rollups.tasks.consider_run"),
    "tell of sources": _every(60, "ingest.tasks.tell_sources"),
    "prune exemplars": _every(3_600, "ingest.tasks.prune_exemplars"),
    "send the site metrics": _every(30, "frontend.tasks.send_site_metrics"),
    "consider maintenance": _every(600, "rollups.tasks.consider_maintenance"),
    "consider a backup": _every(60, "spm.backup.tasks.consider_backup"),
}

SPM_BACKUP_DIR: str = env.str("SPM_BACKUP_DIR", "")
SPM_BACKUP_CRON: str = env.str("SPM_BACKUP_CRON", "30 2 * * *")
SPM_BACKUP_KEEP: int = env.int("SPM_BACKUP_KEEP", 7)
if SPM_BACKUP_KEEP < 1:
    raise ImproperlyConfigured(f"SPM_BACKUP_KEEP is {SPM_BACKUP_KEEP}; it is a number of backups, 1 or more.")
try:
    CronSim(SPM_BACKUP_CRON, datetime(2000, 1, 1, tzinfo=UTC))
except CronSimError as _error:
    raise ImproperlyConfigured(
        f"SPM_BACKUP_CRON is {SPM_BACKUP_CRON!r}; it is five fields of cron in UTC, as in '30 2 * * *': {_error}"
    ) from _error
