"""``manage.py roll``: compact what waits and build hours and days, on Spark or in this process, with its progress."""

import os
import sys
from argparse import ArgumentParser
from threading import Thread
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from rollups import conduct, upkeep
from rollups.models import Kind, Run
from rollups.run import Progress
from spm import limits
from spm.clock import SystemClock
from spm.errors import SpmError

_PARENT_LOOK_S = 1.0
_LINE_EVERY_S = 5.0  # without a terminal: a line now and then
_NICENESS = 10  # of a run that beat started: requests go first


class Command(BaseCommand):
    """See the module."""

    help = "Compact what waits, build hourly and daily aggregates, and put them into force."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """The command's options."""
        parser.add_argument("--app", type=int, action="append", help="only this app's id (may be repeated)")
        parser.add_argument("--local", action="store_true", help="in this process, without Spark")
        parser.add_argument("--minor", action="store_true", help="only add what is new; leave closed hours and days")
        parser.add_argument("--now", type=int, metavar="MS", help="take this as the present time")
        parser.add_argument("--tidy", action="store_true", help="then purge, if the last such purge is a day old")
        parser.add_argument("--with-parent", action="store_true", help="end when the process that started this ends")

    def handle(self, *args: Any, **options: Any) -> None:
        """One run."""
        if options["with_parent"]:
            os.nice(_NICENESS)
            Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
        site, apps = conduct.site(), options["app"] or conduct.every_app()
        try:
            run = conduct.roll(
                site,
                apps=apps,
                kind=Kind.MINOR if options["minor"] else Kind.FULL,
                executor="local" if options["local"] else "spark",
                now_ms=options["now"],
                watch=_Line(self),
                wait_s=0 if options["with_parent"] else limits.ROLL_WAIT_S,
            )
            tidied = options["tidy"] and upkeep.tidy(site, apps=apps)
        except SpmError as error:
            raise CommandError(str(error)) from error
        self.stdout.write("nothing to do" if run is None else _summary(run))
        if tidied:
            self.stdout.write("superseded rows were purged")


def _summary(run: Run) -> str:
    days = run.days.count()
    text = (
        f"run {run.number}: {run.units} units of {days} days, {run.samples:,} samples, {run.size_bytes:,} bytes"
        f" in {run.seconds:.1f} s ({run.samples_per_s or 0:,.0f} samples/s, {run.executor})"
    )
    return f"{text}\n{run.message}" if run.message else text


class _Line:
    """Progress as one line that is written over, or as a line every few seconds where there is no terminal."""

    def __init__(self, command: BaseCommand) -> None:
        self._out, self._clock, self._last = command.stderr, SystemClock(), float("-inf")
        self._terminal = sys.stderr.isatty()

    def __call__(self, progress: Progress) -> None:
        last = progress.units == progress.units_total
        if not (self._terminal or last) and self._clock.monotonic() - self._last < _LINE_EVERY_S:
            return
        self._last = self._clock.monotonic()
        eta = "" if progress.eta_s is None else f", {progress.eta_s:.0f} s to go"
        text = f"{progress.units}/{progress.units_total} units, {progress.samples_per_s:,.0f} samples/s{eta}"
        self._out.write(
            f"\r\x1b[K{text}" if self._terminal else text, ending="\n" if last or not self._terminal else ""
        )


def _end_with(parent: int) -> None:
    """End this process when its parent has gone. A run may be killed anywhere."""
    clock = SystemClock()
    while os.getppid() == parent:
        clock.sleep(_PARENT_LOOK_S)
    os._exit(1)
