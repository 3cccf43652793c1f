"""``manage.py erase_retracted APP NUMBER``: deletes for good what a retraction hides, after a preview and a prompt."""

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
from spm.accounts.access import require_app_number
from spm.errors import SpmError


class Command(BaseCommand):
    help = "Delete for good what a retraction hides. This cannot be undone."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Adds the options of the command."""
        parser.add_argument("app", type=int, help="the app's number")
        parser.add_argument("number", type=int, help="the retraction's number")
        parser.add_argument("--yes", action="store_true", help="do not ask")
        parser.add_argument("--dry-run", action="store_true", help="say what would be deleted")

    def handle(self, *args: Any, **options: Any) -> None:
        """Shows what would be deleted, asks, and deletes it."""
        site, number, line = services_runs.site(), options["number"], terminal.ProgressLine(self.stderr)
        try:
            app = require_app_number(options["app"])
            self.stdout.write(services_retractions.describe(site, app, number))
            self.stdout.write(
                terminal.erasure_text(services_maintenance.preview_erasure(site, app, number), "would be deleted")
            )
            if options["dry_run"] or not (options["yes"] or _agreed(number)):
                self.stdout.write("nothing was deleted")
                return
            done = services_maintenance.erase_retracted(
                site,
                app,
                number,
                Actor("command line", "command line"),
                wait_s=limits.ROLL_WAIT_S,
                watch=lambda app, days, total: line.show(f"{app}: {days:,}/{total:,} days", last=days == total),
            )
        except SpmError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(terminal.erasure_text(done, "were deleted"))


def _agreed(number: int) -> bool:
    phrase = services_retractions.confirmation_phrase(number)
    return terminal.ask(f"Type “{phrase}” to delete this for good: ") == phrase
