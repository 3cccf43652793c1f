"""``manage.py upgrade``: rewrites rows of older versions of this program, by runs, while everything continues to work.

It may be stopped at any time and started again; answers are equal before, during and after it.
"""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from rollups.management import terminal
from rollups.models import RunKind
from rollups.services import runs as services_runs
from spm.errors import SpmError


class Command(BaseCommand):
    help = "Rewrite rows of older forms in the background."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Adds the options of the command."""
        parser.add_argument("--app", type=int, action="append", help="only this app's id (may be repeated)")
        parser.add_argument("--local", action="store_true", help="in this process, without Spark")
        parser.add_argument("--dry-run", action="store_true", help="say what there is to do")

    def handle(self, *args: Any, **options: Any) -> None:
        """Does one run over every day."""
        try:
            apps = services_runs.find_apps(options["app"])
            if options["dry_run"]:
                self.stdout.write(terminal.preview_roll(apps=apps, kind=RunKind.UPGRADE))
                return
            self.stdout.write(terminal.roll(self.stderr, apps=apps, kind=RunKind.UPGRADE, local=options["local"]))
        except SpmError as error:
            raise CommandError(str(error)) from error
