"""``manage.py alerting_health``: one look at whether alerting works, to be run each minute by a timer of the system.

manage.py alerting_health --ping https://hc.example.org/3f1c --mail ops@example.org

While all is well it asks the URL, so that silence there is the alarm, also when this machine is gone. Else it sends a
mail past the outbox, and ends with status 1.
"""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from alerts.health.alarm import look
from alerts.notify.base import DeliveryFailed
from spm.clock import SystemClock

_clock = SystemClock()


class Command(BaseCommand):
    """The command ``alerting_health``."""

    help = "Say whether alerting works; ask a URL if it does, send a mail if it does not."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the command's options."""
        parser.add_argument("--ping", metavar="URL", help="asked while all is well")
        parser.add_argument("--mail", metavar="ADDRESS", help="told while it is not")

    def handle(self, *args: Any, ping: str | None, mail: str | None, **options: Any) -> None:
        """Look once."""
        try:
            texts = look(_clock.now_ms(), url=ping, address=mail)
        except DeliveryFailed as failure:
            raise CommandError(str(failure)) from failure
        if texts:
            raise CommandError("\n".join(texts))
        self.stdout.write("alerting works")
