"""``manage.py backup DIR``: makes a backup of the running product in a new folder inside DIR."""

from argparse import ArgumentParser, ArgumentTypeError
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from rollups.management.terminal import ProgressLine, end_with_parent, size_text
from spm.backup.backup import make_backup
from spm.clock import SystemClock, moment
from spm.errors import SpmError


class Command(BaseCommand):
    """The command ``backup``."""

    help = "Copy the database, the store and the secrets into a new folder, while the product runs."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Where to, and how many backups stay there."""
        parser.add_argument("folder", type=Path, metavar="DIR", help="the folder of the backups, on another disk")
        parser.add_argument("--keep", type=_positive, metavar="N", help="then delete all in DIR but the newest N")
        parser.add_argument("--with-parent", action="store_true", help="end when the process that started this ends")

    def handle(self, *args: Any, folder: Path, keep: int | None, with_parent: bool, **options: Any) -> None:
        """Make one backup and say what it has."""
        if with_parent:
            end_with_parent()
        clock, line = SystemClock(), ProgressLine(self.stderr)

        try:
            finished = make_backup(folder.absolute(), clock, line.show_bytes, keep=keep)
        except (SpmError, OSError) as error:
            raise CommandError(str(error)) from error
        record = finished.record
        lines = [
            f"{finished.folder}: {size_text(record.size_bytes)} in {(record.ended_ms - record.begun_ms) / 1000:.1f} s",
            f"It has everything that was acknowledged until {moment(record.complete_to_ms):%Y-%m-%d %H:%M:%S} UTC.",
            *(f"{old} was deleted." for old in finished.deleted),
        ]
        if record.store != "lmdb":
            lines.append("The store is not in it: HBase makes snapshots of its own, see docs/how-to/backup.md.")
        lines.append("Settings in .env and in the environment are not in it.")
        self.stdout.write("\n".join(lines))


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise ArgumentTypeError(f"{text!r} is no number of backups: use 1 or more")
    return int(text)
