"""``manage.py restore BACKUP``: puts a backup back where nothing of the product runs."""

import os
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from rollups.management.terminal import ProgressLine, size_text
from spm.backup.restore import restore_backup
from spm.cli.preflight import CannotStart, lock_data
from spm.clock import SystemClock, moment
from spm.errors import SpmError


class Command(BaseCommand):
    """The command ``restore``."""

    help = "Put a backup back into an empty data folder and database. Stop the product first."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Which backup, and whether what is here may be moved aside."""
        parser.add_argument("backup", type=Path, metavar="BACKUP", help="a folder that `backup` made")
        parser.add_argument(
            "--replace",
            action="store_true",
            help="move what is here to a folder before-restore-TIME; a PostgreSQL database is overwritten",
        )

    def handle(self, *args: Any, backup: Path, replace: bool, **options: Any) -> None:
        """Restore one backup and say what to do next."""
        clock, data, line = SystemClock(), Path(settings.SPM_DATA), ProgressLine(self.stderr)

        try:
            data.mkdir(parents=True, exist_ok=True)
            lock = lock_data(data)
            try:
                restored = restore_backup(backup.absolute(), clock, line.show_bytes, replace=replace)
            finally:
                os.close(lock)
        except (SpmError, CannotStart, OSError) as error:
            raise CommandError(str(error)) from error
        record = restored.record
        lines = [
            f"{size_text(record.size_bytes)} put back in {restored.seconds:.1f} s.",
            f"Here is everything that was acknowledged until {moment(record.complete_to_ms):%Y-%m-%d %H:%M:%S} UTC.",
        ]
        if restored.aside:
            lines.append(f"What was here before is in {restored.aside}. Delete it when you are sure.")
        if record.store != "lmdb":
            lines.append("The store is not touched: restore the snapshot of HBase first, see docs/how-to/backup.md.")
        lines.append("Check it with `bin/manage fsck`, then start the product.")
        self.stdout.write("\n".join(lines))
