"""``manage.py bootstrap --url URL [--json]``: creates the first organisation and prints its login. Safe to repeat."""

from argparse import ArgumentParser
from json import dumps
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from spm.accounts.bootstrap import create_demo


class Command(BaseCommand):
    """The command ``bootstrap``."""

    help = "Create the demo organisation if there is none, and print how to log in."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """``--url`` is the address for people; ``--json`` prints one line for scripts, with the agent's token."""
        parser.add_argument("--url", default=settings.SPM_BASE_URL)
        parser.add_argument("--json", action="store_true")

    def handle(self, *args: Any, url: str, json: bool, **options: Any) -> None:
        layout = _for_scripts if json else _for_people
        self.stdout.write(layout(create_demo(Path(settings.SPM_DATA), url)))


def _for_scripts(login: dict[str, Any]) -> str:
    return dumps(login)


def _for_people(login: dict[str, Any]) -> str:
    shown = ("url", "login", "password", "app", "token")
    return "\n".join(f"{name}: {login[name]}" for name in shown if login[name] is not None)
