"""``manage.py prepare --url URL``: prepares a data folder for the product's processes. Safe to repeat.

It reports each step on standard error. The last line of standard output is JSON with the login, this host's agent
token, and how many kernels are still to be compiled. ``bin/start`` calls it before it starts any process, and
``manage.py prepare --kernels-alone`` beside them.
"""

import json
import os
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from spm.accounts import internal_app
from spm.accounts.bootstrap import create_demo
from spm.cli.console import say
from spm.cli.prepare import count_kernels, kernels_are_stale, steps, warm_kernels
from spm.cli.store_check import StoreMismatch, check_store
from spm.errors import StoreDamaged
from spm.store.backends import open_backend


class Command(BaseCommand):
    """The command ``prepare``."""

    help = "Migrate, collect static files, compile kernels, create the first organisation and the product's own app."
    requires_system_checks = ()  # they load every page and rule: a second of each start

    def add_arguments(self, parser: ArgumentParser) -> None:
        """``--url`` is the address for people."""
        parser.add_argument("--url", default=settings.SPM_BASE_URL)
        parser.add_argument("--kernels-later", action="store_true", help="compile no kernels, say how many are missing")
        parser.add_argument("--kernels-alone", action="store_true", help="do nothing but compile kernels")
        parser.add_argument("--accept-store", action="store_true", help="go on with a store that is empty or another's")

    def handle(self, *args: Any, url: str, accept_store: bool, **options: Any) -> None:
        """Run the steps that are due, and print the login."""
        if options["kernels_alone"]:
            warm_kernels()
            return
        for title, step in steps():
            say(title)
            step()
        try:
            check_store(open_backend(settings.SPM_STORE_URL), settings.SPM_STORE_URL, accept=accept_store)
        except StoreMismatch as error:
            raise CommandError(str(error)) from error
        except StoreDamaged as error:
            raise CommandError(f"{error} The store is {settings.SPM_STORE_URL}.") from error
        stale = count_kernels() if kernels_are_stale() else 0
        is_later = options["kernels_later"] and "NUMBA_CACHE_DIR" in os.environ
        if stale and not is_later:
            say("compiling kernels, once: some minutes")
            warm_kernels()
        login = create_demo(Path(settings.SPM_DATA), url)
        internal_app.create()
        self.stdout.write(json.dumps({**login, "kernels_later": stale if is_later else 0}))
