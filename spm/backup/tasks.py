"""The periodic task of backups: starts one when the schedule says so."""

from pathlib import Path

from celery import shared_task
from django.conf import settings

from rollups.services.runs import start_process
from spm.backup.schedule import is_due
from spm.clock import SystemClock


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def consider_backup() -> bool:
    """Start a backup in a process of its own, if one is due; the folder's lock lets one at a time do its work."""
    folder, cron = settings.SPM_BACKUP_DIR, settings.SPM_BACKUP_CRON
    if not folder or not is_due(Path(folder), cron, SystemClock().now_ms()):
        return False
    start_process("backup", folder, "--keep", str(settings.SPM_BACKUP_KEEP))
    return True
