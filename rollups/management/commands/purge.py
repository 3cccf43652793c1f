"""``manage.py purge``: deletes superseded generations and covered blocks. What is in force stays."""

from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from rollups.management import terminal
from rollups.services import maintenance as services_maintenance
from rollups.services import runs as services_runs
from spm import limits
from spm.errors import SpmError


class Command(BaseCommand):
    help = "Delete superseded rows of the store."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Adds the options of the command."""
        parser.add_argument("--app", type=int, action="append", help="only this app's id (may be repeated)")
        parser.add_argument("--dry-run", action="store_true", help="say what would be deleted, why, and how many bytes")
        parser.add_argument("--spark", action="store_true", help="list the rows by a Spark job, for very many of them")
        parser.add_argument(
            "--keep",
            type=_count,
            default=limits.PURGE_HISTORY,
            metavar="N",
            help="former states of each hour shard that stay, so that its last N runs can be rolled back (%(default)s)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Does one purge."""
        line = terminal.ProgressLine(self.stderr)
        try:
            result = services_maintenance.purge_superseded(
                services_runs.site(),
                apps=services_runs.find_apps(options["app"]),
                keep=options["keep"],
                dry_run=options["dry_run"],
                spark=options["spark"],
                wait_s=limits.ROLL_WAIT_S,
                watch=lambda app, done, total: line.show(f"{app}: {done:,}/{total:,} days", last=done == total),
            )
        except SpmError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(terminal.purge_text(result, "would be deleted" if options["dry_run"] else "were deleted"))


def _count(text: str) -> int:
    if not text.isdecimal():
        raise ArgumentTypeError(f"{text!r} is no number of states: write at least 0")
    return int(text)
