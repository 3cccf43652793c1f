"""``manage.py retention``: expires what is older than the retention of each app: samples, then hours, then days."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from rollups.management import terminal
from rollups.services import maintenance as services_maintenance
from rollups.services import runs as services_runs
from spm import limits
from spm.errors import SpmError


class Command(BaseCommand):
    help = "Expire samples, hours and days that are older than the app's retention."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Adds the options of the command."""
        parser.add_argument("--app", type=int, action="append", help="only this app's id (may be repeated)")
        parser.add_argument("--spark", action="store_true", help="do merges that are still missing on Spark")
        parser.add_argument("--dry-run", action="store_true", help="say what would be deleted")

    def handle(self, *args: Any, **options: Any) -> None:
        """Expires data of all apps, or of those named."""
        site, line = services_runs.site(), terminal.ProgressLine(self.stderr)
        try:
            apps = services_runs.find_apps(options["app"])
            if options["dry_run"]:
                self.stdout.write(
                    terminal.expiry_preview_text(services_maintenance.preview_expiry_of_apps(site, apps=apps))
                )
                return
            done = services_maintenance.expire(
                site,
                apps=apps,
                executor="spark" if options["spark"] else "local",
                wait_s=limits.ROLL_WAIT_S,
                watch=lambda app, days, total: line.show(f"{app}: {days:,}/{total:,} days", last=days == total),
            )
        except SpmError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(terminal.expiry_text(done))
