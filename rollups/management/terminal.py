"""Texts that commands write: progress while they work (one line, written over on a terminal), and results.

``ProgressLine`` shows texts; ``progress_text`` formats the progress of a run. ``roll`` does a run and shows its
progress, for the commands that do one.
"""

import os
import sys
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from threading import Thread
from typing import Protocol

from django.core.management.base import CommandError

from rollups.check.findings import Report
from rollups.decide.superseded import COVERED, EXPIRED, ORPHAN, SUPERSEDED
from rollups.delete.erase_retracted import ErasureResult
from rollups.delete.expire import ExpiryResult
from rollups.delete.purge import PurgeResult
from rollups.models import Run, RunKind
from rollups.run.driver import Progress
from rollups.services import runs as services_runs
from rollups.services.maintenance import ExpiryPreview
from spm import limits
from spm.accounts.models import App
from spm.clock import Clock, SystemClock
from spm.errors import Refused

LINE_EVERY_S = 5.0  # without a terminal
PARENT_LOOK_S = 1.0
NICENESS = 10  # of a run that beat started: requests go first


_WHY = {
    SUPERSEDED: "a later run replaced them",
    ORPHAN: "no run published them",
    COVERED: "compacted rows hold the same samples",
    EXPIRED: "older than the retention",
}

_UNREADABLE = (
    "{} ranges of rows cannot be reached, since pages of data.mdb are damaged; they are named above as unreadable, and"
    " nothing was repaired. Stop everything that uses the data folder, put a copy back (`bin/manage restore`, see"
    " docs/how-to/backup.md), and check the disk before you go on."
)


class TextOutput(Protocol):
    """The stream to which a command writes: its own stderr."""

    def write(self, msg: str = "", style_func: Callable[[str], str] | None = None, ending: str | None = None) -> None:
        """Writes a text."""


class ProgressLine:
    """One line of progress."""

    def __init__(self, out: TextOutput, *, terminal: bool | None = None, clock: Clock | None = None) -> None:
        self._out, self._clock, self._last = out, clock or SystemClock(), float("-inf")
        self._terminal = sys.stderr.isatty() if terminal is None else terminal

    def show(self, text: str, *, last: bool = False) -> None:
        """Writes a text on a terminal, if it is the last, or if enough time has passed."""
        if not (self._terminal or last) and self._clock.monotonic() - self._last < LINE_EVERY_S:
            return
        self._last = self._clock.monotonic()
        ending = "\n" if last or not self._terminal else ""
        self._out.write(f"\r\x1b[K{text}" if self._terminal else text, ending=ending)

    def show_bytes(self, step: str, done: int, total: int) -> None:
        """Writes how many bytes of a step are done."""
        self.show(f"{step}: {size_text(done)} of {size_text(max(done, total))}")

    def __call__(self, progress: Progress) -> None:
        """Writes the progress of a run."""
        self.show(progress_text(progress), last=progress.hour_shards == progress.hour_shards_total)


def progress_text(progress: Progress) -> str:
    """``3/12 hour shards, 1,234,567 samples/s, 9 s to go``."""
    eta = "" if progress.eta_s is None else f", {progress.eta_s:.0f} s to go"
    count = f"{progress.hour_shards:,}/{progress.hour_shards_total:,} hour shards"
    return f"{count}, {progress.samples_per_s:,.0f} samples/s{eta}"


def roll(
    out: TextOutput,
    *,
    apps: Sequence[int],
    kind: RunKind,
    local: bool,
    sweep: bool = False,
    now_ms: int | None = None,
    wait_s: float = limits.ROLL_WAIT_S,
) -> str:
    """Does one run and shows its progress; returns a text of what it did."""
    run = services_runs.roll(
        services_runs.site(),
        apps=apps,
        kind=kind,
        executor="local" if local else "spark",
        sweep=sweep,
        now_ms=now_ms,
        watch=ProgressLine(out),
        wait_s=wait_s,
    )
    return "nothing to do" if run is None else run_text(run)


def preview_roll(*, apps: Sequence[int], kind: RunKind, sweep: bool = False, now_ms: int | None = None) -> str:
    """A text of what such a run would do."""
    estimate = services_runs.preview_roll(services_runs.site(), apps=apps, kind=kind, sweep=sweep, now_ms=now_ms)
    if not estimate.days:
        return "nothing to do"
    count = f"{estimate.hour_shards:,} hour shards of {estimate.days:,} days"
    return f"would compact {count}, {estimate.samples:,} pending samples"


def run_text(run: Run) -> str:
    """A text of what a run did."""
    text = (
        f"run {run.number}: {run.units} hour shards of {run.days.count()} days, {run.samples:,} samples,"
        f" {run.size_bytes:,} bytes in {run.seconds:.1f} s ({run.samples_per_s or 0:,.0f} samples/s, {run.executor})"
    )
    return f"{text}\n{run.message}" if run.message else text


def parse_time(text: str) -> int:
    """Parses an option: a time in ISO 8601 (UTC by default) or a number of ms; returns ms."""
    try:
        ms = int(text) if text.isdecimal() else _ms(datetime.fromisoformat(text))
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no time: write 2026-11-21T10:00 (UTC), or ms since 1970") from None
    if not 0 <= ms <= limits.TIME_MAX_MS:
        raise ArgumentTypeError(f"{text!r} is out of range")
    return ms


def _ms(read: datetime) -> int:
    return int((read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp() * 1000)


def ask(question: str) -> str:
    """Asks the person at the terminal. Raises ``Refused`` if there is no terminal."""
    try:
        return input(question).strip()
    except EOFError:
        raise Refused("there is nobody to ask", remedy="Add --yes, after a look with --dry-run.") from None


def size_text(count: int) -> str:
    """``12 B``, ``3.4 kB``, ``5.6 MB``."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:,.1f} TB"


def purge_text(result: PurgeResult, verb: str) -> str:
    """A text of the rows that were deleted, why, and their size."""
    lines = [
        f"{tally.rows:,} rows of {table}, {size_text(tally.size_bytes)}: {reason}, {_WHY[reason]}"
        for (table, reason), tally in sorted(result.tallies.items())
    ]
    lines += [f"{result.busy} days were skipped: their manifests kept changing"] if result.busy else []
    lines += [f"{result.damaged} generations are damaged: `fsck` names them"] if result.damaged else []
    lines += [f"{size_text(result.size_bytes)} {verb}"] if result.tallies else []
    return "\n".join(lines) or "nothing to purge"


def expiry_preview_text(previews: Mapping[App, Sequence[ExpiryPreview]]) -> str:
    """A text of what would be deleted of each app's resolutions."""
    lines = [
        f"{app}: {each.resolution.lower()}, {each.rows:,} rows, {size_text(each.size_bytes)} would be deleted"
        for app, of_app in previews.items()
        for each in of_app
    ]
    return "\n".join(lines) or "nothing is older than the retention"


def expiry_text(results: Mapping[App, ExpiryResult]) -> str:
    """A text of what was deleted of each app."""
    lines = []
    for app, result in results.items():
        lines.append(
            f"{app}: deleted samples of {len(result.sealed_hours):,} hours, hours of {len(result.expired_days):,} days"
            f" and {len(result.dropped_days):,} days; {size_text(result.deletions.size_bytes)}"
        )
        lines += result.errors
    return "\n".join(lines) or "nothing is older than the retention"


def erasure_text(result: ErasureResult, verb: str) -> str:
    """A text of what was erased of a retraction."""
    count = f"{result.versions:,} samples in {result.hour_shards:,} hour shards"
    lines = [f"{count} {verb}, in rows of {size_text(result.deletions.size_bytes)}"]
    lines += [f"{len(result.sealed_hours):,} hours past retention stay as they are"] if result.sealed_hours else []
    return "\n".join([*lines, *result.errors])


def check_text(reports: Mapping[App, Report]) -> str:
    """A text of the findings of a check, and of how many rows it checked, by app."""
    lines = []
    for app, report in reports.items():
        lines += [f"{app}: {finding}" for finding in report.findings]
        lines.append(
            f"{app}: {report.rows:,} rows read, {report.hours:,} hours and {report.days:,} days recounted,"
            f" {report.stale:,} due for the next run, {report.unreferenced:,} rows for the next purge:"
            f" {f'{len(report.findings):,} findings' if report.findings else 'all is well'}"
        )
    return "\n".join(lines) or "there is no such app"


def refuse_unreadable(reports: Iterable[Report]) -> None:
    """Raise a ``CommandError`` that says what to do, if rows cannot be reached in the store's own file."""
    if ranges := sum(report.unreadable for report in reports):
        raise CommandError(_UNREADABLE.format(ranges))


def end_with_parent() -> None:
    """Lowers the priority of this process, and ends it when its parent has ended: a run may be killed anywhere."""
    os.nice(NICENESS)
    Thread(target=_watch, args=(os.getppid(),), daemon=True).start()


def _watch(parent: int) -> None:
    clock = SystemClock()
    while os.getppid() == parent:
        clock.sleep(PARENT_LOOK_S)
    os._exit(1)
