"""``manage.py fsck``: verify every row, recount hours and days from what they were made of, find lost marks.

It reads and changes nothing, unless ``--repair`` is given: then lost commit records are written again, and hours and
days that are wrong go out of force, so that readers count anew. Its status is 1 when something is wrong.
"""

import sys
from argparse import ArgumentParser
from datetime import UTC, datetime
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from rollups import conduct, terminal, upkeep
from spm import limits
from spm.errors import SpmError
from spm.limits import HOUR_MS


class Command(BaseCommand):
    """See the module."""

    help = "Check the store against itself."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The command's options."""
        parser.add_argument("--app", type=int, action="append", help="only this app's id (may be repeated)")
        parser.add_argument(
            "--hour", type=_slot, action="append", metavar="TIME", help="recount only the hour that begins then, UTC"
        )
        parser.add_argument("--repair", action="store_true", help="mend what is provably safe to mend")

    def handle(self, *args: Any, **options: Any) -> None:
        """One check."""
        line = terminal.Line(self.stderr)
        try:
            found = upkeep.check(
                conduct.site(),
                apps=options["app"] or conduct.every_app(),
                slots=options["hour"],
                repair=options["repair"],
                wait_s=limits.ROLL_WAIT_S,
                watch=lambda app, seen, total: line.show(f"{app}: {seen:,}/{total:,} days", last=seen == total),
            )
        except SpmError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(terminal.checked(found))
        if any(report.status for report in found.values()):
            sys.exit(1)


def _slot(text: str) -> int:
    moment = datetime.fromisoformat(text)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000) // HOUR_MS
