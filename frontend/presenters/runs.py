"""Runs as one app's people see them: their own part of each, and how far a running one is.

A run may serve many apps. Numbers are those of the app's own days, which stand when it is finished; while it works for
this app alone, they are its progress. Of one that works for others, too, only the share done is told: how much those
have is no business of this app's people. Messages stay in the administration, since they may name units of others.
"""

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Max, Min, Q, Sum

from rollups.models import Run, RunDay, State
from spm.accounts.models import App

SHOWN = 100
FAILED_LOOK = 500  # runs among which those that failed or are at work are looked for


@dataclass(frozen=True, slots=True)
class Part:
    """A run, from one app's side. While it works, ``eta_s`` is known; numbers only if it works for no other app."""

    number: int
    kind: str
    executor: str
    state: str
    percent: int
    units: int | None
    units_total: int | None
    samples: int | None
    size_bytes: int
    started: datetime
    finished: datetime | None
    seconds: float
    eta_s: float | None
    first_day: object = None
    last_day: object = None

    @property
    def samples_per_s(self) -> float | None:
        """How fast it is, or was, with all that came along."""
        return self.samples / self.seconds if self.samples is not None and self.seconds > 0 else None

    @property
    def running(self) -> bool:
        """Whether it works now."""
        return self.state == State.RUNNING

    @property
    def may_return(self) -> bool:
        """Whether there is something to roll back, as far as the list knows; the store has the last word."""
        return self.state in (State.DONE, State.LOST, State.FAILED) and bool(self.units)


def parts_of(app: App, now: datetime) -> list[Part]:
    """The app's runs, newest first."""
    touched = RunDay.objects.filter(app=app).order_by("-run__number").values_list("run__number", flat=True).distinct()
    idle = Run.objects.filter(Q(state=State.RUNNING) | Q(state=State.FAILED) | Q(state=State.LOST))
    others = [run.number for run in idle.order_by("-number")[:FAILED_LOOK] if app.pk in run.apps]
    numbers = sorted({*touched[:SHOWN], *others}, reverse=True)[:SHOWN]
    return [_part(run, app, now) for run in Run.objects.filter(number__in=numbers)]


def part_of(app: App, number: int, now: datetime) -> Part | None:
    """One of them; ``None`` for a run that had nothing to do with the app."""
    run = Run.objects.filter(number=number).first()
    if run is None or not (run.days.filter(app=app).exists() or (run.state != State.DONE and app.pk in run.apps)):
        return None
    return _part(run, app, now)


def _part(run: Run, app: App, now: datetime) -> Part:
    own = run.days.filter(app=app)
    sums = own.aggregate(
        units=Sum("units"), samples=Sum("samples"), size=Sum("size_bytes"), first=Min("day"), last=Max("day")
    )
    working, alone = run.state == State.RUNNING, run.apps == [app.pk]
    units, total, samples = (run.units, run.units_total, run.samples) if alone else (None, None, None)
    if not working:
        units = total = sums["units"] or 0
        samples = sums["samples"] or 0
    seconds = ((run.finished or now) - run.started).total_seconds()
    flipped = own.filter(flipped=True)
    back = flipped.exists() and not flipped.filter(rolled_back=False).exists()
    return Part(
        number=run.number,
        kind=run.kind,
        executor=run.executor,
        state=State.ROLLED_BACK if back else run.state,
        percent=100 if not working else 100 * run.units // run.units_total if run.units_total else 0,
        units=units,
        units_total=total,
        samples=samples,
        size_bytes=sums["size"] or 0,
        started=run.started,
        finished=run.finished,
        seconds=seconds,
        eta_s=run.eta_s(now),
        first_day=sums["first"],
        last_day=sums["last"],
    )
