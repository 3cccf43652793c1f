"""``manage.py dead``: lists an app's dead letters, accepts them anew after a fix, or settles them as they are."""

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from ingest.accept.acceptor import accept_anew
from ingest.accounting import dead_letter_review
from ingest.accounting.dead_letter_review import Outcome, Shown
from spm import limits
from spm.accounts.models import App
from spm.store.backends import open_backend
from spm.store.ledger.dead_letters import NOBODY


class Command(BaseCommand):
    """Dead letters of one app."""

    help = "List the dead letters of an app, newest first; --replay or --dismiss those with the given keys."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("app", type=int, help="the app's number; 0: letters of which nobody knows whose they are")
        parser.add_argument("keys", nargs="*", metavar="KEY", help="letters, as the list names them")
        parser.add_argument("--before", default="", metavar="KEY", help="go on with letters older than this one")
        act = parser.add_mutually_exclusive_group()
        act.add_argument("--replay", dest="act", action="store_const", const="replay", help="accept these anew")
        act.add_argument(
            "--dismiss", dest="act", action="store_const", const="dismiss", help="leave these be; they stay"
        )
        parser.set_defaults(act="list")

    def handle(self, *args: Any, **options: Any) -> None:
        """List or settle."""
        app, keys = options["app"], options["keys"]
        if app != NOBODY and not App.objects.filter(pk=app).exists():
            raise CommandError(f"There is no app {app}.")
        store = open_backend(settings.SPM_STORE_URL)
        if options["act"] != "list":
            self._tell(dead_letter_review.settle(store, app, keys, options["act"], accept_anew))
            return
        found = dead_letter_review.listed(store, app, count=limits.LETTERS_PAGE, before=options["before"])
        self.stdout.write("\n".join(_line(shown) for shown in found) or "no dead letters")

    def _tell(self, outcome: Outcome) -> None:
        self.stdout.write(f"{outcome.done} done")
        for reason in outcome.refused:
            self.stderr.write(reason)
        if outcome.refused:
            raise CommandError(f"{len(outcome.refused)} not done")


def _line(shown: Shown) -> str:
    at = shown.accepted.isoformat(timespec="seconds")
    what = shown.place or shown.excerpt or f"{shown.count} samples in {shown.series} series of {shown.source}"
    first = "".join(f"\n      {s.series} {s.value!r} @ {s.ts_ms}" for s in shown.samples)
    return f"{shown.key}  {at}  {shown.state}\n      {shown.cause}: {what}{first}"
