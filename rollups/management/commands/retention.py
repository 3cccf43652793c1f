"""``manage.py retention``: let go what is older than each app keeps: samples, then hours, then days."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from rollups.management import terminal
from rollups.services import maintenance as services_maintenance
from rollups.services import runs as services_runs
from spm import limits
from spm.errors import SpmError


class Command(BaseCommand):
    """See the module."""

    help = "Let go what is older than each app keeps it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The command's options."""
        parser.add_argument("--app", type=int, action="append", help="only this app's id (may be repeated)")
        parser.add_argument("--spark", action="store_true", help="merge what is not merged yet on Spark")
        parser.add_argument("--dry-run", action="store_true", help="say what would go")

    def handle(self, *args: Any, **options: Any) -> None:
        """All apps, or those named."""
        site, line = services_runs.site(), terminal.Line(self.stderr)
        try:
            apps = services_runs.apps_named(options["app"])
            if options["dry_run"]:
                self.stdout.write(terminal.expiring(services_maintenance.would_retain(site, apps=apps)))
                return
            done = services_maintenance.retain(
                site,
                apps=apps,
                executor="spark" if options["spark"] else "local",
                wait_s=limits.ROLL_WAIT_S,
                watch=lambda app, seen, total: line.show(f"{app}: {seen:,}/{total:,} days", last=seen == total),
            )
        except SpmError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(terminal.retained(done))
