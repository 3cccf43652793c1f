"""``manage.py maintain``: does the daily maintenance: expiry, redistribution, purge, and deletion of deleted apps.

With ``--compact`` it compacts the file of a stopped site instead.
"""

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from rollups.management import terminal
from rollups.services import maintenance as services_maintenance
from rollups.services import runs as services_runs
from spm.errors import SpmError
from spm.store.backends import lmdb_file


class Command(BaseCommand):
    help = "Expire, redistribute, purge and delete apps, as far as it is due."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Adds the options of the command."""
        parser.add_argument(
            "--compact",
            action="store_true",
            help="only give the free space of the store's file back to the disk; stop the product first (LMDB)",
        )
        parser.add_argument("--with-parent", action="store_true", help="end when the process that started this ends")

    def handle(self, *args: Any, **options: Any) -> None:
        """Does all that is due, or compacts the file."""
        if options["with_parent"]:
            terminal.end_with_parent()
        if options["compact"]:
            self._compact(settings.SPM_STORE_URL)
            return
        try:
            done = services_maintenance.maintain(services_runs.site(), apps=services_runs.all_apps())
        except SpmError as error:
            raise CommandError(str(error)) from error
        self.stdout.write("done" if done else "the last maintenance was less than a day ago")

    def _compact(self, url: str) -> None:
        folder = lmdb_file.folder_of(url)
        if folder is None:
            raise CommandError(f"The store {url} has no file. HBase compacts its own.")
        try:
            before, after = lmdb_file.compact_file(folder)
        except (SpmError, OSError) as error:
            raise CommandError(str(error)) from error
        was, now = terminal.size_text(before.file_bytes), terminal.size_text(after.file_bytes)
        self.stdout.write(f"{folder}/data.mdb: {was} before, {now} now")
