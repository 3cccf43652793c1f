"""``manage.py maintain``: does the daily maintenance: expiry, redistribution, purge, and deletion of deleted apps."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from rollups.management import terminal
from rollups.services import maintenance as services_maintenance
from rollups.services import runs as services_runs
from spm.errors import SpmError


class Command(BaseCommand):
    help = "Expire, redistribute, purge and delete apps, as far as it is due."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Adds the options of the command."""
        parser.add_argument("--with-parent", action="store_true", help="end when the process that started this ends")

    def handle(self, *args: Any, **options: Any) -> None:
        """Does all that is due."""
        if options["with_parent"]:
            terminal.end_with_parent()
        try:
            done = services_maintenance.maintain(services_runs.site(), apps=services_runs.all_apps())
        except SpmError as error:
            raise CommandError(str(error)) from error
        self.stdout.write("done" if done else "the last maintenance was less than a day ago")
