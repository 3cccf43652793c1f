"""``manage.py purge``: delete superseded generations and blocks that chunks hold. What is in force stays."""

from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from rollups.management import terminal
from rollups.services import maintenance as services_maintenance
from rollups.services import runs as services_runs
from spm import limits
from spm.errors import SpmError


class Command(BaseCommand):
    """See the module."""

    help = "Delete superseded rows of the store."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The command's options."""
        parser.add_argument("--app", type=int, action="append", help="only this app's id (may be repeated)")
        parser.add_argument("--dry-run", action="store_true", help="say what would go, why, and how many bytes")
        parser.add_argument("--spark", action="store_true", help="list rows by a job of Spark, for very many of them")
        parser.add_argument(
            "--keep",
            type=_count,
            default=limits.PURGE_HISTORY,
            metavar="N",
            help="former states of each unit that stay, so that its last N runs can be rolled back (%(default)s)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """One purge."""
        line = terminal.Line(self.stderr)
        try:
            gone = services_maintenance.clean(
                services_runs.site(),
                apps=services_runs.apps_named(options["app"]),
                keep=options["keep"],
                dry_run=options["dry_run"],
                spark=options["spark"],
                wait_s=limits.ROLL_WAIT_S,
                watch=lambda app, done, total: line.show(f"{app}: {done:,}/{total:,} days", last=done == total),
            )
        except SpmError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(terminal.purged(gone, "would go" if options["dry_run"] else "went"))


def _count(text: str) -> int:
    if not text.isdecimal():
        raise ArgumentTypeError(f"{text!r} is no number of states: write at least 0")
    return int(text)
