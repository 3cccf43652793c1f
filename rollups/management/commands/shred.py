"""``manage.py shred APP NUMBER``: delete for good what a retraction hides, after a look and a question."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from rollups.management import terminal
from rollups.services import (
    maintenance as services_maintenance,
)
from rollups.services import (
    retractions as services_retractions,
)
from rollups.services import (
    runs as services_runs,
)
from rollups.services.retractions import Actor
from spm import limits
from spm.accounts.access import app_numbered
from spm.errors import SpmError


class Command(BaseCommand):
    """See the module."""

    help = "Delete for good what a retraction hides; there is no undo afterwards."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The command's options."""
        parser.add_argument("app", type=int, help="the app's number")
        parser.add_argument("number", type=int, help="the retraction's number")
        parser.add_argument("--yes", action="store_true", help="do not ask")
        parser.add_argument("--dry-run", action="store_true", help="say what would go")

    def handle(self, *args: Any, **options: Any) -> None:
        """Look, ask, act."""
        site, number, line = services_runs.site(), options["number"], terminal.Line(self.stderr)
        try:
            app = app_numbered(options["app"])
            self.stdout.write(services_retractions.described(site, app, number))
            self.stdout.write(terminal.shredded(services_maintenance.would_purge(site, app, number), "would go"))
            if options["dry_run"] or not (options["yes"] or _agreed(number)):
                self.stdout.write("nothing was deleted")
                return
            done = services_maintenance.purge_retraction(
                site,
                app,
                number,
                Actor("command line", "command line"),
                wait_s=limits.ROLL_WAIT_S,
                watch=lambda app, seen, total: line.show(f"{app}: {seen:,}/{total:,} days", last=seen == total),
            )
        except SpmError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(terminal.shredded(done, "went"))


def _agreed(number: int) -> bool:
    words = services_retractions.confirmation(number)
    return terminal.answer(f"Type “{words}” to delete this for good: ") == words
