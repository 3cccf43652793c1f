"""``manage.py retract APP …``: hides samples from every answer, after a preview and a question.

manage.py retract 7 --source web-1 --accepted-from 2026-11-21T10:00 --reason "wrong clock"
manage.py retract 7 --series 'cpu_usage{host="a"}' --after 2026-11-20 --up-to 2026-11-21 --reason test --yes
"""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from frontend.presenters import retractions as presenter
from rollups.management import terminal
from rollups.services.retractions import Actor
from spm.accounts.access import require_app_number
from spm.errors import Refused, SpmError

_BY = Actor("command line", "command line")


class Command(BaseCommand):
    """The command ``retract``."""

    help = "Hide samples from every answer; it can be undone."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the command's options."""
        moment = terminal.parse_time
        parser.add_argument("app", type=int, help="the app's number")
        parser.add_argument("--source", default="", help="only what this source sent")
        parser.add_argument("--series", default="", metavar="SELECTOR", help="only these series, as a PromQL selector")
        parser.add_argument(
            "--accepted-from", type=moment, dest="write_from", metavar="TIME", help="UTC, ISO 8601, or ms"
        )
        parser.add_argument("--accepted-to", type=moment, dest="write_to", metavar="TIME", help="by default now")
        parser.add_argument("--after", type=moment, dest="data_from", metavar="TIME", help="samples after this time")
        parser.add_argument("--up-to", type=moment, dest="data_to", metavar="TIME", help="samples up to this time")
        parser.add_argument("--reason", default="", help="why; stored with the retraction")
        parser.add_argument("--yes", action="store_true", help="do not ask")
        parser.add_argument("--dry-run", action="store_true", help="only the preview")

    def handle(self, *args: Any, **options: Any) -> None:
        """Preview, ask, and retract."""
        try:
            app = require_app_number(options["app"])
            if not (options["dry_run"] or options["reason"].strip()):
                raise Refused("a retraction needs a reason", remedy="Add --reason, or --dry-run for a preview.")
            draft = presenter.parse_draft(options, _BY.name)
            preview = presenter.preview_draft(app, draft)
            self.stdout.write("\n".join(preview.lines()))
            if options["dry_run"] or not (options["yes"] or _is_confirmed()):
                self.stdout.write("nothing was changed")
                return
            result, _ = presenter.retract(app, draft, _BY)
        except SpmError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(
            f"retraction {result.retraction.number} is in force; `undo {app.pk} {result.retraction.number}` ends it"
        )


def _is_confirmed() -> bool:
    return terminal.ask("Hide this from every answer? [y/N] ").lower() in ("y", "yes")
