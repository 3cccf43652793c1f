"""``manage.py rollback RUN``: every unit that a run touched returns to the state before it. No data is lost."""

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from rollups import conduct
from spm.errors import SpmError


class Command(BaseCommand):
    """See the module."""

    help = "Take a run back: the state before it returns into force."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The command's options."""
        parser.add_argument("run", type=int, help="the run's number, as the admin and `roll` show it")

    def handle(self, *args: Any, **options: Any) -> None:
        """One roll back."""
        try:
            done = conduct.take_back(conduct.site(), options["run"], None)
        except SpmError as error:
            raise CommandError(str(error)) from error
        units = sum(back.units for back in done)
        self.stdout.write(f"run {options['run']} was rolled back in {units} units of {len(done)} days")
