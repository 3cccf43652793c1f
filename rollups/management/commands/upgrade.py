"""``manage.py upgrade``: rewrite what an older version of this program wrote, by runs, while everything goes on.

It may be stopped at any time and started again; answers are the same before, meanwhile and after.
"""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from rollups.management import terminal
from rollups.models import Kind
from rollups.services import runs as services_runs
from spm.errors import SpmError


class Command(BaseCommand):
    """See the module."""

    help = "Rewrite rows of older forms in the background."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The command's options."""
        parser.add_argument("--app", type=int, action="append", help="only this app's id (may be repeated)")
        parser.add_argument("--local", action="store_true", help="in this process, without Spark")
        parser.add_argument("--dry-run", action="store_true", help="say what there is to do")

    def handle(self, *args: Any, **options: Any) -> None:
        """One run over every day."""
        try:
            apps = services_runs.apps_named(options["app"])
            if options["dry_run"]:
                self.stdout.write(terminal.would_roll(apps=apps, kind=Kind.UPGRADE))
                return
            self.stdout.write(terminal.rolled(self.stderr, apps=apps, kind=Kind.UPGRADE, local=options["local"]))
        except SpmError as error:
            raise CommandError(str(error)) from error
