"""``manage.py tidy``: what beat does once a day. Retention, redistribution, purge, and the bytes of deleted apps."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from rollups import conduct, terminal, upkeep
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
            done = upkeep.tidy(conduct.site(), apps=conduct.every_app())
        except SpmError as error:
            raise CommandError(str(error)) from error
        self.stdout.write("done" if done else "the last time is less than a day ago")
