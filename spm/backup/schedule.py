"""When a scheduled backup is due: after each time of a cron expression (UTC) that no backup in the folder has followed.

So one that was missed, because nothing ran or the disk was full, is made as soon as it can be, and only once.
"""

from datetime import UTC, datetime
from pathlib import Path

from cronsim import CronSim

from spm.backup import record
from spm.backup.backup import list_backups
from spm.clock import moment
from spm.errors import SpmError


def is_due(folder: Path, cron: str, now_ms: int) -> bool:
    """Whether a backup is due now."""
    last = next(CronSim(cron, moment(now_ms), reverse=True))
    newest_ms = newest_backup_ms(folder)
    return newest_ms is None or datetime.fromtimestamp(newest_ms / 1000, UTC) < last


def newest_backup_ms(folder: Path) -> int | None:
    """Return up to when the newest backup in a folder has everything; ``None`` without a backup."""
    for path in list_backups(folder):
        try:
            return record.read(path).complete_to_ms
        except SpmError:  # a damaged one is none
            continue
    return None
