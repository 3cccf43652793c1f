"""``manage.py prepare --url URL``: makes a data folder ready for the product's processes. Safe to repeat.

Says each step on standard error; the last line of standard output is JSON and says how to log in, this host's agent
token included. ``bin/start`` calls it before it starts anything.
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
    """See the module."""

    help = "Migrate, collect static files, compile kernels, make the first organisation and the product's own."
    requires_system_checks = ()  # they load every page and rule: a second of each start

    def add_arguments(self, parser: ArgumentParser) -> None:
        """``--url`` is what people will open."""
        parser.add_argument("--url", default=settings.SPM_BASE_URL)

    def handle(self, *args: Any, url: str, **options: Any) -> None:
        """Run the steps that are due."""
        for words, step in steps():
            say(words)
            step()
        login = create_demo(Path(settings.SPM_DATA), url)
        internal_app.make()
        self.stdout.write(json.dumps(login))
