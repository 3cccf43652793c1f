"""``manage.py units --print``: prints systemd's units for this checkout, or writes them into a folder."""

import os
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from spm.cli.options import parse
from spm.cli.units import Place, printed, units


class Command(BaseCommand):
    """The command ``units``."""

    help = "Print the units by which systemd runs the web server, the worker, beat and this host's agent."
    requires_system_checks = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        """``--directory`` writes a file per unit."""
        what = parser.add_mutually_exclusive_group(required=True)
        what.add_argument("--print", action="store_true", help="print all units")
        what.add_argument("--directory", type=Path, metavar="DIR", help="write each unit into a file in this folder")
        parser.add_argument("--user", default="spm", help="the user that runs them (spm)")
        parser.add_argument("--port", default="8000", metavar="N", help="the web server's port (8000)")

    def handle(self, *args: Any, **options: Any) -> None:
        """Print or write the units."""
        own = parse(["--port", options["port"]], {**os.environ, "SPM_DATA": str(settings.SPM_DATA)}, settings.SPM_ROOT)
        environment = Path(os.environ.get("SPM_ENVIRONMENT", sys.prefix)).absolute()
        place = Place(settings.SPM_ROOT, environment, own.data, options["user"], own.host, own.port)
        files = units(place)
        if options["print"]:
            self.stdout.write(printed(files, place), ending="")
            return
        for name, text in files.items():
            try:
                (options["directory"] / name).write_text(text)
            except OSError as error:
                raise CommandError(f"{options['directory'] / name} cannot be written: {error.strerror}.") from error
            self.stdout.write(str(options["directory"] / name))
