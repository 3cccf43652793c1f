"""The quotas of an app: its own where staff have set some, else the site's.

The site's sample rate is the setting ``SPM_APP_RATE_MAX``. Where it is not set, an installation on one machine has
none, since the only load that it would stop is its owner's; one with a queue has ``QUOTA_SAMPLES_PER_S``.

Enter by ``read_quota``: each process caches the database's answer for ``QUOTA_CACHE_S``, and longer while the database
does not answer, since no samples are refused for want of a quota.
"""

from dataclasses import dataclass

from django.conf import settings
from django.db import DatabaseError

from spm import limits
from spm.accounts.models import App
from spm.bounded import TtlMap
from spm.clock import Clock, SystemClock

QUOTA_PAST_HOURS = 20_000  # two years of history; each costs some 6 ms of all processes, so 3 % of a core
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Quota:
    """The series an app may have, the samples it may send a second, for how many days it keeps data (None: all), and to
    how many hours of the past it may send within an hour. Without a bound a number is None.
    """

    series: int = limits.QUOTA_SERIES
    samples_per_s: int | None = limits.QUOTA_SAMPLES_PER_S
    kept_days: int | None = None
    past_hours: int | None = QUOTA_PAST_HOURS

    def oldest_ms(self, now_ms: int) -> int:
        """The earliest time of samples that would still be kept."""
        return 1 if self.kept_days is None else max(1, now_ms - (self.kept_days + 1) * _DAY_MS)


_cache: TtlMap[int, Quota] = TtlMap(limits.QUOTA_APPS_MAX, limits.QUOTA_CACHE_S)
_clock = SystemClock()


def read_quota(app_id: int, clock: Clock = _clock) -> Quota:
    """The app's quotas, at most ``QUOTA_CACHE_S`` old."""
    return _cache.get_or_load(app_id, clock.monotonic(), lambda: _load(app_id))


def quota_of_row(app: App | None) -> Quota:
    """The quotas in an app's row."""
    if app is None:
        return Quota(samples_per_s=site_rate(), past_hours=site_past_hours())
    series = limits.QUOTA_SERIES if app.series_max is None else app.series_max
    rate = site_rate() if app.rate_max is None else app.rate_max
    return Quota(series, rate, app.day_days, site_past_hours())


def site_rate() -> int | None:
    """The samples a second of an app without a rate of its own; None: any number."""
    rate: int | None = settings.SPM_APP_RATE_MAX
    return rate


def site_past_hours() -> int | None:
    """To how many hours of the past an app may send within an hour; None: any number."""
    hours: int | None = settings.SPM_APP_PAST_HOURS_MAX or None
    return hours


def _load(app_id: int) -> Quota:
    try:
        return quota_of_row(App.objects.filter(pk=app_id).first())
    except DatabaseError:
        return _cache.last(app_id) or quota_of_row(None)
