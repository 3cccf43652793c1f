"""``manage.py prepare --url URL``: prepares a data folder for the product's processes. Safe to repeat.

It reports each step on standard error. The last line of standard output is JSON with the login and this host's agent
token. ``bin/start`` calls it before it starts any process.
"""

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from spm.accounts import internal_app
from spm.accounts.bootstrap import create_demo
from spm.cli.console import say
from spm.cli.prepare import steps


class Command(BaseCommand):
    """The command ``prepare``."""

    help = "Migrate, collect static files, compile kernels, create the first organisation and the product's own app."
    requires_system_checks = ()  # they load every page and rule: a second of each start

    def add_arguments(self, parser: ArgumentParser) -> None:
        """``--url`` is the address for people."""
        parser.add_argument("--url", default=settings.SPM_BASE_URL)

    def handle(self, *args: Any, url: str, **options: Any) -> None:
        """Run the steps that are due, and print the login."""
        for title, step in steps():
            say(title)
            step()
        login = create_demo(Path(settings.SPM_DATA), url)
        internal_app.create()
        self.stdout.write(json.dumps(login))
