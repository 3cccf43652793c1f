"""Notes troubles of single apps and days, so that all others go on, and how long beat starts no run for them again.

``Troubles`` holds those of one kind of act: enter its ``isolated`` around the work for one app. ``note_run`` notes what
a run could not do. ``resting`` says what beat starts no run for during ``ROLL_TROUBLE_GAP_MS``; a run that starts for
another reason tries it anyway. How long a run waits that failed as a whole, ``rollups.decide.plan`` decides.
"""

import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from rollups import limits
from rollups.models import Trouble, date_of
from rollups.run.progress import RunReport
from spm.errors import ONE_APP_ERRORS

RUN = "run"
_LOG = logging.getLogger(__name__)
_REASON_CHARS_MAX = 2_000


class Troubles:
    """The troubles of one kind of act. Only those that it knows of, or that come up now, cost a query each."""

    def __init__(self, act: str, now: datetime) -> None:
        self._act, self._now = act, now
        self._noted = set(Trouble.objects.filter(act=act).values_list("app_id", "day"))

    @contextmanager
    def isolated(self, app: int) -> Iterator[None]:
        """Ends the body at an error of this app alone and notes it; forgets the app's trouble if the body succeeds.

        Whatever may concern all apps, such as a store that does not answer, is raised.
        """
        try:
            yield
        except ONE_APP_ERRORS as error:
            _LOG.exception("%s of app %s failed, other apps go on", self._act, app)
            self.note(app, None, f"{type(error).__name__}: {error}")
        else:
            self.forget(app, None)

    def apps(self) -> set[int]:
        """The apps that have a trouble of this act."""
        return {app for app, _ in self._noted}

    def note(self, app: int, day: int | None, reason: str) -> None:
        """Notes a trouble of an app, or of one of its days."""
        key = app, None if day is None else date_of(day)
        where = {"app_id": app, "act": self._act, "day": key[1]}
        if key in self._noted:
            Trouble.objects.filter(**where).update(reason=reason[:_REASON_CHARS_MAX], at=self._now)
        else:
            Trouble.objects.create(**where, reason=reason[:_REASON_CHARS_MAX], since=self._now, at=self._now)
            self._noted.add(key)

    def forget(self, app: int, day: int | None) -> None:
        """Forgets a trouble, if there is one."""
        self._forget(app, None if day is None else date_of(day))

    def forget_days(self, app: int, but: Collection[int]) -> None:
        """Forgets the troubles of an app's days, but not of these."""
        rest = {date_of(day) for day in but}
        for _, day in [key for key in self._noted if key[0] == app and key[1] is not None and key[1] not in rest]:
            self._forget(app, day)

    def _forget(self, app: int, day: date | None) -> None:
        if (app, day) in self._noted:
            Trouble.objects.filter(app_id=app, act=self._act, day=day).delete()
            self._noted.discard((app, day))


def note_run(report: RunReport, apps: Collection[int], now: datetime) -> None:
    """Notes what a run could not do, by app and day, and forgets what it could."""
    troubles = Troubles(RUN, now)
    for app in apps:
        if app in report.app_errors:
            troubles.note(app, None, report.app_errors[app])
        else:
            troubles.forget(app, None)
    for day in report.days:
        if day.errors:
            troubles.note(day.app, day.day, "\n".join(day.errors))
        else:
            troubles.forget(day.app, day.day)


@dataclass(frozen=True, slots=True)
class Resting:
    """The apps, and the days of apps, that a run has tried in vain a short time ago."""

    rows: frozenset[tuple[int, date | None]]

    def rests(self, app: int, day: int) -> bool:
        """Whether no run starts for this day of an app."""
        return self.rests_whole(app) or (app, date_of(day)) in self.rows

    def rests_whole(self, app: int) -> bool:
        """Whether no run starts for this app."""
        return (app, None) in self.rows


def resting(now: datetime) -> Resting:
    """What was tried in vain within ``ROLL_TROUBLE_GAP_MS``; a run that starts for another reason tries it anyway."""
    start = now - timedelta(milliseconds=limits.ROLL_TROUBLE_GAP_MS)
    return Resting(frozenset(Trouble.objects.filter(at__gt=start, act=RUN).values_list("app_id", "day")))
