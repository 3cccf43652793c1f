"""``manage.py delete_app``: deletes the rows of apps that people have deleted now, not at beat's next maintenance."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from rollups.management import terminal
from rollups.services import maintenance as services_maintenance
from rollups.services import runs as services_runs
from spm import limits
from spm.errors import SpmError


class Command(BaseCommand):
    help = "Delete all rows of deleted apps for good."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Adds the options of the command."""
        parser.add_argument("--dry-run", action="store_true", help="say what would be deleted")

    def handle(self, *args: Any, **options: Any) -> None:
        """Deletes all apps that are due."""
        line = terminal.ProgressLine(self.stderr)
        try:
            deletions = services_maintenance.delete_apps(
                services_runs.site(),
                dry_run=options["dry_run"],
                wait_s=limits.ROLL_WAIT_S,
                watch=lambda app, rows: line.show(
                    f"{app}: {rows.row_count:,} rows, {terminal.size_text(rows.byte_count)}"
                ),
            )
        except SpmError as error:
            raise CommandError(str(error)) from error
        verb = "would be deleted" if options["dry_run"] else "were deleted"
        texts = [
            f"{app}: {each.row_count:,} rows, {terminal.size_text(each.byte_count)} {verb}"
            for app, each in deletions.items()
        ]
        self.stdout.write("\n".join(texts) or "no deleted app is due")
