"""``manage.py redistribute APP --spread N``: spreads an app's data over N shards, while everything continues to work.

Without ``--spread``, ``--shards`` and ``--strategy`` it continues a move in progress: it moves data out of the shards
of former placement epochs, and closes each epoch when nothing is left there.
"""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from rollups.management import terminal
from rollups.services import placement
from rollups.services import runs as services_runs
from rollups.services.placement import PlacementRequest
from spm import limits
from spm.accounts.access import require_app_number
from spm.errors import SpmError


class Command(BaseCommand):
    help = "Spread an app over more shards, move its data, close former placement epochs."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Adds the options of the command."""
        parser.add_argument("app", type=int, help="the app's number")
        parser.add_argument("--spread", type=int, help="over how many of the shards its data lies")
        parser.add_argument("--shards", "--buckets", dest="shards", type=int, help="the number of shards (1 to 256)")
        parser.add_argument("--strategy", help="hash, byte, or one of a module that SPM_STRATEGIES names")
        parser.add_argument("--with-parent", action="store_true", help="end when the process that started this ends")
        parser.add_argument("--local", action="store_true", help="in this process, without Spark")

    def handle(self, *args: Any, **options: Any) -> None:
        """Redistributes one app."""
        if options["with_parent"]:
            terminal.end_with_parent()
        try:
            moved = placement.redistribute(
                services_runs.site(),
                require_app_number(options["app"]).pk,
                PlacementRequest(options["spread"], options["shards"], options["strategy"]),
                executor="local" if options["local"] else "spark",
                wait_s=limits.ROLL_WAIT_S,
                watch=terminal.ProgressLine(self.stderr),
            )
        except SpmError as error:
            raise CommandError(str(error)) from error
        state = "\n".join(["not closed yet:", *moved.obstacles]) if moved.obstacles else "all former epochs are closed"
        self.stdout.write(f"{moved.hour_shards:,} hour shards moved; {state}")
