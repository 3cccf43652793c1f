"""``manage.py docs DIR``: writes the documents as a site of files; fails if a link leads nowhere."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from frontend.help.documents import read_library
from frontend.help.site import write_site


class Command(BaseCommand):
    """The command ``docs``."""

    help = "Write the documents as a site of files into a folder."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the command's options."""
        parser.add_argument("folder", type=Path, help="where the site goes")

    def handle(self, *args: Any, **options: Any) -> None:
        """Read the documents, and write the site if nothing is wrong with them."""
        library = read_library(settings.SPM_ROOT)
        if library.problems or not library.documents:
            raise CommandError("\n".join(library.problems) or f"there are no documents in {settings.SPM_ROOT}/docs")
        pages = write_site(library, options["folder"])
        self.stdout.write(f"{len(pages)} pages in {options['folder']}")
