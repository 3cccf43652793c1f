"""What commands write while they work: one line that is written over, or a line now and then without a terminal.

``Line`` takes texts; ``progress`` puts how far a run is into words. ``rolled`` is the roll of a run with all of that,
for the commands that do one.
"""

import os
import sys
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from threading import Thread
from typing import Protocol

from rollups.check.findings import Report
from rollups.decide.superseded import COVERED, EXPIRED, ORPHAN, SUPERSEDED
from rollups.delete.erase_retracted import Shredded
from rollups.delete.purge import Purged
from rollups.delete.seal import Retained
from rollups.models import Kind, Run
from rollups.run.driver import Progress
from rollups.services import runs as services_runs
from rollups.services.maintenance import Going
from spm import limits
from spm.accounts.models import App
from spm.clock import Clock, SystemClock
from spm.errors import Refused

LINE_EVERY_S = 5.0  # without a terminal
PARENT_LOOK_S = 1.0
NICENESS = 10  # of a run that beat started: requests go first


_WHY = {
    SUPERSEDED: "a later run wrote them anew",
    ORPHAN: "no run put them in force",
    COVERED: "compacted rows hold the same samples",
    EXPIRED: "older than they are kept",
}


class Out(Protocol):
    """Where a command writes: its own stderr."""

    def write(self, msg: str = "", style_func: Callable[[str], str] | None = None, ending: str | None = None) -> None:
        """One text."""


class Line:
    """One line of progress."""

    def __init__(self, out: Out, *, terminal: bool | None = None, clock: Clock | None = None) -> None:
        self._out, self._clock, self._last = out, clock or SystemClock(), float("-inf")
        self._terminal = sys.stderr.isatty() if terminal is None else terminal

    def show(self, text: str, *, last: bool = False) -> None:
        """Write it, if there is a terminal, if it is the last, or if enough time has passed."""
        if not (self._terminal or last) and self._clock.monotonic() - self._last < LINE_EVERY_S:
            return
        self._last = self._clock.monotonic()
        ending = "\n" if last or not self._terminal else ""
        self._out.write(f"\r\x1b[K{text}" if self._terminal else text, ending=ending)

    def __call__(self, seen: Progress) -> None:
        """How far a run is."""
        self.show(progress(seen), last=seen.units == seen.units_total)


def progress(seen: Progress) -> str:
    """``3/12 units, 1,234,567 samples/s, 9 s to go``."""
    eta = "" if seen.eta_s is None else f", {seen.eta_s:.0f} s to go"
    return f"{seen.units:,}/{seen.units_total:,} units, {seen.samples_per_s:,.0f} samples/s{eta}"


def rolled(
    out: Out,
    *,
    apps: Sequence[int],
    kind: Kind,
    local: bool,
    sweep: bool = False,
    now_ms: int | None = None,
    wait_s: float = limits.ROLL_WAIT_S,
) -> str:
    """Do one run with its progress; what it did, in words."""
    run = services_runs.roll(
        services_runs.site(),
        apps=apps,
        kind=kind,
        executor="local" if local else "spark",
        sweep=sweep,
        now_ms=now_ms,
        watch=Line(out),
        wait_s=wait_s,
    )
    return "nothing to do" if run is None else summary(run)


def would_roll(*, apps: Sequence[int], kind: Kind, sweep: bool = False, now_ms: int | None = None) -> str:
    """What such a run would do, in words."""
    waits = services_runs.would_roll(services_runs.site(), apps=apps, kind=kind, sweep=sweep, now_ms=now_ms)
    if not waits.days:
        return "nothing to do"
    return f"would compact {waits.units:,} units of {waits.days:,} days, {waits.samples:,} pending samples"


def summary(run: Run) -> str:
    """What a run did."""
    text = (
        f"run {run.number}: {run.units} units of {run.days.count()} days, {run.samples:,} samples,"
        f" {run.size_bytes:,} bytes in {run.seconds:.1f} s ({run.samples_per_s or 0:,.0f} samples/s, {run.executor})"
    )
    return f"{text}\n{run.message}" if run.message else text


def moment(text: str) -> int:
    """For options: the ms of a time in ISO 8601 (UTC unless it says otherwise), or of a number of ms."""
    try:
        ms = int(text) if text.isdecimal() else _ms(datetime.fromisoformat(text))
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no time: write 2026-11-21T10:00 (UTC), or ms since 1970") from None
    if not 0 <= ms <= limits.TIME_MAX_MS:
        raise ArgumentTypeError(f"{text!r} is out of range")
    return ms


def _ms(read: datetime) -> int:
    return int((read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp() * 1000)


def answer(question: str) -> str:
    """What the person at the terminal writes. Raises ``Refused`` when nobody is there."""
    try:
        return input(question).strip()
    except EOFError:
        raise Refused("there is nobody to ask", remedy="Add --yes, after a look with --dry-run.") from None


def size(count: int) -> str:
    """``12 B``, ``3.4 kB``, ``5.6 MB``."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:,.1f} TB"


def purged(gone: Purged, verb: str) -> str:
    """What went, why, and how much of it there was."""
    lines = [
        f"{tally.rows:,} rows of {table}, {size(tally.size_bytes)}: {reason}, {_WHY[reason]}"
        for (table, reason), tally in sorted(gone.tallies.items())
    ]
    lines += [f"{gone.busy} days are left for another time: their manifests kept moving"] if gone.busy else []
    lines += [f"{gone.damaged} generations are damaged: `fsck` names them"] if gone.damaged else []
    lines += [f"{size(gone.size_bytes)} {verb}"] if gone.tallies else []
    return "\n".join(lines) or "nothing to purge"


def expiring(found: Mapping[App, Sequence[Going]]) -> str:
    """What would go of each app's tiers."""
    lines = [
        f"{app}: {each.tier.lower()}, {each.rows:,} rows, {size(each.size_bytes)} would go"
        for app, tiers in found.items()
        for each in tiers
    ]
    return "\n".join(lines) or "nothing is older than it is kept"


def retained(done: Mapping[App, Retained]) -> str:
    """What went of each app."""
    lines = []
    for app, found in done.items():
        lines.append(
            f"{app}: samples of {len(found.sealed):,} hours, hours of {len(found.expired):,} days and"
            f" {len(found.dropped):,} days went; {size(found.gone.size_bytes)}"
        )
        lines += found.troubles
    return "\n".join(lines) or "nothing is older than it is kept"


def shredded(found: Shredded, verb: str) -> str:
    """What went of a retraction."""
    lines = [
        f"{found.versions:,} samples in {found.units:,} units {verb}, {size(found.gone.size_bytes)} that held them"
    ]
    lines += [f"{len(found.sealed):,} hours past retention stay as they are"] if found.sealed else []
    return "\n".join([*lines, *found.troubles])


def checked(found: Mapping[App, Report]) -> str:
    """What a check has seen of each app, and everything that is not as it must be."""
    lines = []
    for app, report in found.items():
        lines += [f"{app}: {finding}" for finding in report.findings]
        lines.append(
            f"{app}: {report.rows:,} rows read, {report.hours:,} hours and {report.days:,} days recounted,"
            f" {report.stale:,} due for the next run, {report.unreferenced:,} rows for the next purge:"
            f" {f'{len(report.findings):,} findings' if report.findings else 'all is well'}"
        )
    return "\n".join(lines) or "there is no such app"


def end_with_parent() -> None:
    """Let requests go first, and end this process when its parent has gone. A run may be killed anywhere."""
    os.nice(NICENESS)
    Thread(target=_watch, args=(os.getppid(),), daemon=True).start()


def _watch(parent: int) -> None:
    clock = SystemClock()
    while os.getppid() == parent:
        clock.sleep(PARENT_LOOK_S)
    os._exit(1)
