"""``manage.py rollback RUN``: returns every hour shard that a run changed to its former state. No data is lost."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from rollups.services import runs as services_runs
from spm.errors import SpmError


class Command(BaseCommand):
    help = "Roll a run back: the state before it returns into force."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Adds the options of the command."""
        parser.add_argument("run", type=int, help="the run's number, as the admin and `roll` show it")
        parser.add_argument("--app", type=int, action="append", help="only in this app (may be repeated)")
        parser.add_argument("--dry-run", action="store_true", help="say what would return")

    def handle(self, *args: Any, **options: Any) -> None:
        """Does one roll back."""
        site, number = services_runs.site(), options["run"]
        try:
            apps = services_runs.find_apps(options["app"])
            if options["dry_run"]:
                done = services_runs.preview_roll_back(site, number, apps=apps)
            else:
                done = services_runs.roll_back(
                    site, number, None, apps=apps, name="command line", origin="command line"
                )
        except SpmError as error:
            raise CommandError(str(error)) from error
        hour_shards, verb = sum(back.hour_shards for back in done), "would be" if options["dry_run"] else "was"
        self.stdout.write(f"run {number} {verb} rolled back in {hour_shards} hour shards of {len(done)} days")
