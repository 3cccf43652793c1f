"""``manage.py tidy``: what beat does once a day. Retention, redistribution, purge, and the bytes of deleted apps."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from rollups.management import terminal
from rollups.services import maintenance as services_maintenance
from rollups.services import runs as services_runs
from spm.errors import SpmError


class Command(BaseCommand):
    """See the module."""

    help = "Do what is due of retention, redistribution, purge and erasing."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The command's options."""
        parser.add_argument("--with-parent", action="store_true", help="end when the process that started this ends")

    def handle(self, *args: Any, **options: Any) -> None:
        """All of it."""
        if options["with_parent"]:
            terminal.end_with_parent()
        try:
            done = services_maintenance.tidy(services_runs.site(), apps=services_runs.every_app())
        except SpmError as error:
            raise CommandError(str(error)) from error
        self.stdout.write("done" if done else "the last time is less than a day ago")
