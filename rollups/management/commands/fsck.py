"""``manage.py fsck``: verifies every row, recounts hours and days from their inputs, finds lost commit records.

It changes nothing unless ``--repair`` is given: then it writes lost commit records again, and takes wrong hours and
days out of force, so that readers count again. ``--rebuild`` also rebuilds manifests that cannot be read. ``--spark``
recounts hours as one Spark job. Damaged pages of LMDB's file are passed by; it names what they held. The exit status is
1 if something is wrong.
"""

import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from rollups.check.findings import Report
from rollups.management import terminal
from rollups.services import maintenance as services_maintenance
from rollups.services import runs as services_runs
from spm import limits
from spm.accounts.models import App
from spm.errors import SpmError
from spm.limits import HOUR_MS

_RESTORED = "Was an older database restored? Restore the newer one, or the store that belongs to this one."


class Command(BaseCommand):
    help = "Check the store against itself."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Adds the options of the command."""
        parser.add_argument("--app", type=int, action="append", help="only this app's id (may be repeated)")
        parser.add_argument(
            "--hour", type=_hour, action="append", metavar="TIME", help="recount only the hour that begins then, UTC"
        )
        how = parser.add_mutually_exclusive_group()
        how.add_argument(
            "--spark", action="store_true", help="recount hours on Spark, for many of them; rows and days are left out"
        )
        how.add_argument("--repair", action="store_true", help="repair what is provably safe to repair")
        how.add_argument(
            "--rebuild",
            action="store_true",
            help="repair, and rebuild damaged manifests: earlier runs stay as they are",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        """Does one check."""
        hours = options["hour"]
        try:
            apps = services_runs.find_apps(options["app"])
            reports = self._on_spark(apps, hours) if options["spark"] else self._here(apps, hours, options)
        except SpmError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(terminal.check_text(reports))
        terminal.refuse_unreadable(reports.values())
        unlisted = [] if options["app"] else services_maintenance.unlisted_apps(services_runs.site())
        if unlisted:
            numbers = ", ".join(map(str, unlisted))
            self.stdout.write(f"The store has rows of apps that the database does not know: {numbers}. {_RESTORED}")
        if unlisted or any(report.status for report in reports.values()):
            sys.exit(1)

    def _on_spark(self, apps: list[int], hours: list[int] | None) -> dict[App, Report]:
        return services_maintenance.check_on_spark(
            services_runs.site(), apps=apps, hours=hours, wait_s=limits.ROLL_WAIT_S
        )

    def _here(self, apps: list[int], hours: list[int] | None, options: dict[str, Any]) -> dict[App, Report]:
        line = terminal.ProgressLine(self.stderr)
        return services_maintenance.check(
            services_runs.site(),
            apps=apps,
            hours=hours,
            repair=options["repair"],
            rebuild=options["rebuild"],
            wait_s=limits.ROLL_WAIT_S,
            watch=lambda app, days, total: line.show(f"{app}: {days:,}/{total:,} days", last=days == total),
        )


def _hour(text: str) -> int:
    return terminal.parse_time(text) // HOUR_MS
