"""``manage.py roll``: compacts pending samples and builds hours and days, on Spark or in this process."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from rollups.management import terminal
from rollups.models import RunKind
from rollups.services import maintenance as services_maintenance
from rollups.services import runs as services_runs
from spm import limits
from spm.errors import SpmError


class Command(BaseCommand):
    help = "Compact pending samples, build hourly and daily aggregates, and publish them."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Adds the options of the command."""
        parser.add_argument("--app", type=int, action="append", help="only this app's id (may be repeated)")
        parser.add_argument("--local", action="store_true", help="in this process, without Spark")
        parser.add_argument("--minor", action="store_true", help="only add new samples; leave closed hours and days")
        parser.add_argument("--sweep", action="store_true", help="check every day, not only days that may have work")
        parser.add_argument("--dry-run", action="store_true", help="say what there is to do")
        parser.add_argument("--now", type=terminal.parse_time, metavar="TIME", help="take this as the present time")
        parser.add_argument(
            "--maintain", "--tidy", action="store_true", help="then maintain, if the last maintenance is a day old"
        )
        parser.add_argument("--with-parent", action="store_true", help="end when the process that started this ends")

    def handle(self, *args: Any, **options: Any) -> None:
        """Does one run."""
        if options["with_parent"]:
            terminal.end_with_parent()
        request = {"kind": RunKind.MINOR if options["minor"] else RunKind.FULL, "now_ms": options["now"]}
        wait_s = 0 if options["with_parent"] else limits.ROLL_WAIT_S
        try:
            apps = services_runs.find_apps(options["app"])
            request |= {"apps": apps, "sweep": options["sweep"]}
            if options["dry_run"]:
                self.stdout.write(terminal.preview_roll(**request))
                return
            self.stdout.write(terminal.roll(self.stderr, local=options["local"], wait_s=wait_s, **request))
            maintained = options["maintain"] and services_maintenance.maintain(services_runs.site(), apps=apps)
        except SpmError as error:
            raise CommandError(str(error)) from error
        self.stdout.write("maintenance was done" if maintained else "", ending="\n" if maintained else "")
