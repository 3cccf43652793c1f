"""``manage.py redistribute APP --spread N``: let an app's data lie over N shards, while everything goes on.

Without ``--spread``, ``--shards`` and ``--strategy`` it goes on with what was begun: it moves what lies where a former
distribution put it, and closes that one when nothing is left there.
"""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from rollups.management import terminal
from rollups.services import placement
from rollups.services import runs as services_runs
from rollups.services.placement import Wish
from spm import limits
from spm.accounts.access import app_numbered
from spm.errors import SpmError


class Command(BaseCommand):
    """See the module."""

    help = "Spread an app over more shards, move what it has, close what was before."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The command's options."""
        parser.add_argument("app", type=int, help="the app's number")
        parser.add_argument("--spread", type=int, help="over how many of the shards it lies")
        parser.add_argument("--shards", type=int, help="how many shards there are for it (1 to 256)")
        parser.add_argument("--strategy", help="hash, byte, or one of a module that SPM_STRATEGIES names")
        parser.add_argument("--with-parent", action="store_true", help="end when the process that started this ends")
        parser.add_argument("--local", action="store_true", help="in this process, without Spark")

    def handle(self, *args: Any, **options: Any) -> None:
        """One app."""
        if options["with_parent"]:
            terminal.end_with_parent()
        try:
            moved = placement.redistribute(
                services_runs.site(),
                app_numbered(options["app"]).pk,
                Wish(options["spread"], options["buckets"], options["strategy"]),
                executor="local" if options["local"] else "spark",
                wait_s=limits.ROLL_WAIT_S,
                watch=terminal.Line(self.stderr),
            )
        except SpmError as error:
            raise CommandError(str(error)) from error
        waits = "\n".join(["not closed yet:", *moved.waits]) if moved.waits else "all epochs before are closed"
        self.stdout.write(f"{moved.units:,} units moved; {waits}")
