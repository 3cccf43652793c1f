"""``manage.py undo APP NUMBER``: end a retraction; what it hid counts again."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from rollups.services import retractions as services_retractions
from rollups.services import runs as services_runs
from rollups.services.retractions import Actor
from spm.accounts.access import app_numbered
from spm.errors import SpmError


class Command(BaseCommand):
    """See the module."""

    help = "End a retraction: what it hid counts again."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The command's options."""
        parser.add_argument("app", type=int, help="the app's number")
        parser.add_argument("number", type=int, help="the retraction's number")
        parser.add_argument("--dry-run", action="store_true", help="only say what it is")

    def handle(self, *args: Any, **options: Any) -> None:
        """One undo."""
        site, number = services_runs.site(), options["number"]
        try:
            app = app_numbered(options["app"])
            self.stdout.write(services_retractions.described(site, app, number))
            if options["dry_run"]:
                return
            services_retractions.undo(site, app, number, Actor("command line", "command line"))
        except SpmError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"retraction {number} is undone")
