"""``manage.py roll``: compact what waits and build hours and days, on Spark or in this process, with its progress."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from rollups.management import terminal
from rollups.models import Kind
from rollups.services import maintenance as services_maintenance
from rollups.services import runs as services_runs
from spm import limits
from spm.errors import SpmError


class Command(BaseCommand):
    """See the module."""

    help = "Compact what waits, build hourly and daily aggregates, and put them into force."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The command's options."""
        parser.add_argument("--app", type=int, action="append", help="only this app's id (may be repeated)")
        parser.add_argument("--local", action="store_true", help="in this process, without Spark")
        parser.add_argument("--minor", action="store_true", help="only add what is new; leave closed hours and days")
        parser.add_argument(
            "--sweep", action="store_true", help="look at every day there is, not only where work may be"
        )
        parser.add_argument("--dry-run", action="store_true", help="say what there is to do")
        parser.add_argument("--now", type=terminal.moment, metavar="TIME", help="take this as the present time")
        parser.add_argument("--tidy", action="store_true", help="then purge, if the last such purge is a day old")
        parser.add_argument("--with-parent", action="store_true", help="end when the process that started this ends")

    def handle(self, *args: Any, **options: Any) -> None:
        """One run."""
        if options["with_parent"]:
            terminal.end_with_parent()
        asked = {"kind": Kind.MINOR if options["minor"] else Kind.FULL, "now_ms": options["now"]}
        wait_s = 0 if options["with_parent"] else limits.ROLL_WAIT_S
        try:
            apps = services_runs.apps_named(options["app"])
            asked |= {"apps": apps, "sweep": options["sweep"]}
            if options["dry_run"]:
                self.stdout.write(terminal.would_roll(**asked))
                return
            self.stdout.write(terminal.rolled(self.stderr, local=options["local"], wait_s=wait_s, **asked))
            tidied = options["tidy"] and services_maintenance.tidy(services_runs.site(), apps=apps)
        except SpmError as error:
            raise CommandError(str(error)) from error
        self.stdout.write("superseded rows were purged" if tidied else "", ending="\n" if tidied else "")
