"""``manage.py erase``: delete the bytes of apps that people have deleted, now instead of with beat's next look."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from rollups.management import terminal
from rollups.services import maintenance as services_maintenance
from rollups.services import runs as services_runs
from spm import limits
from spm.errors import SpmError


class Command(BaseCommand):
    """See the module."""

    help = "Delete the bytes and rows of deleted apps for good."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The command's options."""
        parser.add_argument("--dry-run", action="store_true", help="say what would go")

    def handle(self, *args: Any, **options: Any) -> None:
        """All that are due."""
        line = terminal.Line(self.stderr)
        try:
            gone = services_maintenance.erase_gone(
                services_runs.site(),
                dry_run=options["dry_run"],
                wait_s=limits.ROLL_WAIT_S,
                watch=lambda app, seen: line.show(f"{app}: {seen.row_count:,} rows, {terminal.size(seen.byte_count)}"),
            )
        except SpmError as error:
            raise CommandError(str(error)) from error
        verb = "would go" if options["dry_run"] else "went"
        texts = [
            f"{app}: {each.row_count:,} rows, {terminal.size(each.byte_count)} {verb}" for app, each in gone.items()
        ]
        self.stdout.write("\n".join(texts) or "no deleted app is due")
