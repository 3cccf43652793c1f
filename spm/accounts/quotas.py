"""How much an app may send: its own quotas where staff have set some, else the site's.

Enter by ``of``: what the database said is remembered for ``QUOTA_CACHE_S`` per process, and longer while the database
does not answer, since a quota is no reason to refuse anybody's samples.
"""

from dataclasses import dataclass

from django.db import DatabaseError

from spm import limits
from spm.accounts.models import App
from spm.clock import Clock, SystemClock

_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Quota:
    """Series an app may have, samples it may send a second, and for how many days it keeps anything (None: all)."""

    series: int = limits.QUOTA_SERIES
    samples_per_s: int = limits.QUOTA_SAMPLES_PER_S
    kept_days: int | None = None

    def oldest_ms(self, now_ms: int) -> int:
        """The earliest time of which anything would still be kept."""
        return 1 if self.kept_days is None else max(1, now_ms - (self.kept_days + 1) * _DAY_MS)


_found: dict[int, tuple[float, Quota]] = {}  # a cache, bounded by QUOTA_APPS_MAX
_clock = SystemClock()


def of(app_id: int, clock: Clock = _clock) -> Quota:
    """The app's quotas now, or a few seconds ago."""
    now = clock.monotonic()
    known = _found.get(app_id)
    if known is not None and now < known[0]:
        return known[1]
    try:
        quota = told(App.objects.filter(pk=app_id).first())
    except DatabaseError:
        quota = known[1] if known is not None else Quota()
    if len(_found) >= limits.QUOTA_APPS_MAX:
        _found.clear()
    _found[app_id] = (now + limits.QUOTA_CACHE_S, quota)
    return quota


def told(app: App | None) -> Quota:
    """The quotas of an app's row."""
    if app is None:
        return Quota()
    series = limits.QUOTA_SERIES if app.series_max is None else app.series_max
    rate = limits.QUOTA_SAMPLES_PER_S if app.rate_max is None else app.rate_max
    return Quota(series, rate, app.day_days)


def forget() -> None:
    """Ask the database again about every app."""
    _found.clear()
