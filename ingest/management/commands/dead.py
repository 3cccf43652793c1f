"""``manage.py dead``: lists an app's dead letters, replays them after a fix, or dismisses them."""

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from ingest.accept.process_acceptor import accept_again
from ingest.accounting import dead_letter_review
from ingest.accounting.dead_letter_review import DeadLetterSummary, ReviewResult
from spm import limits
from spm.accounts.models import App
from spm.store.backends import open_backend
from spm.store.ledger.dead_letters import UNKNOWN_APP


class Command(BaseCommand):
    """Dead letters of one app."""

    help = "List the dead letters of an app, newest first; --replay or --dismiss those with the given keys."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("app", type=int, help="the app's number; 0: dead letters of unknown apps")
        parser.add_argument("keys", nargs="*", metavar="KEY", help="dead letters, as the list names them")
        parser.add_argument("--before", default="", metavar="KEY", help="continue with those older than this one")
        act = parser.add_mutually_exclusive_group()
        act.add_argument("--replay", dest="act", action="store_const", const="replay", help="accept these again")
        act.add_argument(
            "--dismiss", dest="act", action="store_const", const="dismiss", help="mark these as done; they stay stored"
        )
        parser.set_defaults(act="list")

    def handle(self, *args: Any, **options: Any) -> None:
        """List or settle dead letters."""
        app, keys = options["app"], options["keys"]
        if app != UNKNOWN_APP and not App.objects.filter(pk=app).exists():
            raise CommandError(f"There is no app {app}.")
        store = open_backend(settings.SPM_STORE_URL)
        if options["act"] != "list":
            self._report(dead_letter_review.settle(store, app, keys, options["act"], accept_again))
            return
        rows = dead_letter_review.list_dead_letters(
            store, app, count=limits.DEAD_LETTERS_PAGE, before=options["before"]
        )
        self.stdout.write("\n".join(_line(row) for row in rows) or "no dead letters")

    def _report(self, result: ReviewResult) -> None:
        self.stdout.write(f"{result.done} done")
        for reason in result.refused:
            self.stderr.write(reason)
        if result.refused:
            raise CommandError(f"{len(result.refused)} not done")


def _line(row: DeadLetterSummary) -> str:
    at = row.accepted.isoformat(timespec="seconds")
    content = row.place or row.excerpt or f"{row.count} samples in {row.series} series of {row.source}"
    samples = "".join(f"\n      {s.series} {s.value!r} @ {s.ts_ms}" for s in row.samples)
    return f"{row.key}  {at}  {row.state}\n      {row.cause}: {content}{samples}"
