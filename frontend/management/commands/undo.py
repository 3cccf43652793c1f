"""``manage.py undo APP NUMBER``: ends a retraction; its samples count again."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from rollups.services import retractions as services_retractions
from rollups.services import runs as services_runs
from rollups.services.retractions import Actor
from spm.accounts.access import require_app_number
from spm.errors import SpmError


class Command(BaseCommand):
    """The command ``undo``."""

    help = "End a retraction; its samples count again."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the command's options."""
        parser.add_argument("app", type=int, help="the app's number")
        parser.add_argument("number", type=int, help="the retraction's number")
        parser.add_argument("--dry-run", action="store_true", help="only describe the retraction")

    def handle(self, *args: Any, **options: Any) -> None:
        """Describe the retraction and undo it."""
        site, number = services_runs.site(), options["number"]
        try:
            app = require_app_number(options["app"])
            self.stdout.write(services_retractions.describe(site, app, number))
            if options["dry_run"]:
                return
            services_retractions.undo(site, app, number, Actor("command line", "command line"))
        except SpmError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"retraction {number} is undone")
