"""Admission of samples: an app's rate, its series, its hours of the past, times not kept or in a wrong unit.

Parsers reject times before 1970 and times too far ahead. Enter by ``Admission``, one per process. ``check_rate`` looks
at the rate before a body is read, so that a sender over its rate costs next to nothing. ``admit``, and ``admit_many``
for the bodies of many senders, charges the rate and removes what may not be stored: new series over the quota, hours
of the past over theirs, times older than everything the app keeps, and times decades ago that another unit would bring
near now. What is removed
becomes a rejection with its reason; all other samples are accepted. Never refuses data because the store does not
answer.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from ingest.accept.rate_allowance import PastHours, RateAllowances, TooFast
from ingest.accept.series_quota import RecentApps, SeriesQuota
from ingest.accept.store_pause import StorePause
from ingest.protocols.common import times
from ingest.transport.limits import APART_HOURS, APART_S
from ingest.transport.past import has_past
from spm import limits, telemetry
from spm.accounts import quotas
from spm.accounts.quotas import Quota
from spm.arrays import BOOL, I64
from spm.clock import Clock
from spm.store.backends.base import Backend
from spm.store.ledger.quota import PUSHED, RateBucket
from spm.wire import Parsed, Rejection, SeriesTable, parse_canonical

_LOG = logging.getLogger(__name__)
_FACTORS = (1_000, 1_000_000, 1_000_000_000)
_UNITS = ("ns", "us", "ms", "s")


class Admission:
    """Decides which samples of a message are accepted. Thread-safe.

    ``quota_of`` returns the quota of an app; the store holds the counts that processes share, ``bucket`` names that of
    samples.
    """

    def __init__(
        self,
        store: Backend,
        clock: Clock,
        quota_of: Callable[[int], Quota] = quotas.read_quota,
        bucket: RateBucket = PUSHED,
    ) -> None:
        self._clock, self._quota_of = clock, quota_of
        pause = StorePause(clock)
        self._rates = RateAllowances(store, clock, quota_of, pause, bucket)
        self._slow_apps = RecentApps(clock, APART_S)
        self._past_apps = RecentApps(clock, APART_S)
        self._series = SeriesQuota(store, clock, pause, self._slow_apps)
        self._past = PastHours(store, clock, pause)

    def check_rate(self, app: int) -> None:
        """Raise ``TooFast`` for an app that has used up its rate."""
        self._rates.check(app)

    def reject_if_too_fast(self, app: int, parsed: Parsed) -> Parsed | None:
        """Return a body with all its samples rejected if its app has used up its rate; ``None`` if it has not.

        For what a queue has taken already, whose sender nobody can ask to wait.
        """
        try:
            self._rates.check(app)
        except TooFast as error:
            reason = f"{error.what}: {error.wanted}, an hour's worth at once"
            return _without_samples(parsed, np.ones(len(parsed.ts), np.bool_), reason)
        return None

    def has_allowance(self, app: int) -> bool:
        """Whether ``check_rate`` returns without asking the store."""
        return self._rates.has_allowance(app)

    def is_over_quota(self, app: int) -> bool:
        """Whether the app recently sent series over its quota: the names it sends are then not worth caching."""
        return app in self._series.apps_over_quota

    def is_slow(self, app: int) -> bool:
        """Whether the app recently sent what takes long to accept, for which no other app should wait: many series at
        once that this process did not know, or samples of very many hours.
        """
        return app in self._slow_apps

    def sends_past(self, app: int) -> bool:
        """Whether the app recently sent samples of long ago, whose commit may wait behind others of these."""
        return app in self._past_apps

    def admit(self, app: int, parsed: Parsed, unit: str = "ms") -> Parsed:
        """Return the admitted part of a body and charge the app's rate; ``unit``: of the times as they were sent."""
        if not len(parsed.ts):
            return parsed
        self._rates.charge(app, len(parsed.ts))
        return self._admit(app, parsed, unit)

    def admit_many(self, messages: Sequence[tuple[int, Parsed, str]]) -> list[Parsed | Exception]:
        """Return for each (app, body, unit) what ``admit`` of it returns, or the error that it raises."""
        for app, samples in _samples_by_app(messages).items():
            self._rates.charge(app, samples)
        if len(messages) > 1:
            try:
                return [*self._admit_together(messages)]
            except Exception:  # of one message or one app, which alone gets it
                _LOG.exception("%d messages cannot be admitted together", len(messages))
        return [self._admit_apart(*message) for message in messages]

    def _admit_together(self, messages: Sequence[tuple[int, Parsed, str]]) -> list[Parsed]:
        """Admit by one look at the times and one at the series of all messages."""
        now_ms = self._clock.now_ms()
        allowed = {app: self._quota_of(app) for app in {app for app, _, _ in messages}}
        oldest_ms = {app: each.oldest_ms(now_ms) for app, each in allowed.items()}
        live_ms = now_ms - limits.LIVE_HOURS * limits.HOUR_MS
        sound_ms = {app: max(oldest, times.MISREAD_MS, live_ms) for app, oldest in oldest_ms.items()}
        times_of_all = np.concatenate([parsed.ts for _, parsed, _ in messages])
        if not len(times_of_all) or times_of_all.min() >= max(sound_ms.values()):
            timely = [parsed for _, parsed, _ in messages]
        else:
            timely = [
                parsed if first >= sound_ms[app] else self._timely(app, parsed, allowed[app], unit)
                for (app, parsed, unit), first in zip(messages, _first_times(messages, times_of_all), strict=True)
            ]
        over = self._series.over_quota_many(
            [(app, parsed.series, allowed[app].series) for (app, _, _), parsed in zip(messages, timely, strict=True)]
        )
        return [
            parsed if mask is None else _without_series(parsed, mask, allowed[app].series)
            for (app, _, _), parsed, mask in zip(messages, timely, over, strict=True)
        ]

    def _admit_apart(self, app: int, parsed: Parsed, unit: str) -> Parsed | Exception:
        try:
            return self._admit(app, parsed, unit) if len(parsed.ts) else parsed
        except Exception as error:
            return error

    def _admit(self, app: int, parsed: Parsed, unit: str) -> Parsed:
        allowed = self._quota_of(app)
        timely = self._timely(app, parsed, allowed, unit)
        over = self._series.over_quota(app, timely.series, allowed.series)
        return timely if over is None else _without_series(timely, over, allowed.series)

    def _timely(self, app: int, parsed: Parsed, allowed: Quota, unit: str) -> Parsed:
        """Remove samples at times that may not be stored, and those of hours of the past over the quota."""
        now_ms = self._clock.now_ms()
        if has_past(parsed.ts, now_ms):
            self._past_apps.add(app)
            if int(parsed.ts.max()) - int(parsed.ts.min()) >= APART_HOURS * limits.HOUR_MS:
                self._slow_apps.add(app)
        timely = _without_wrong_times(parsed, now_ms, allowed.oldest_ms(now_ms), unit)
        over = self._past.over_quota(app, timely.ts, allowed.past_hours)
        return timely if over is None else _without_samples(timely, over, over_past_hours(allowed.past_hours or 0))


def over_past_hours(hours_max: int) -> str:
    """Return why samples are rejected: it names the bound, its size, and where it is changed."""
    return (
        f"more than {limits.LIVE_HOURS} hours old, and the app has sent to {hours_max:,} such hours within an hour, "
        "its quota. Send the rest of a history an hour later; staff can change the setting SPM_APP_PAST_HOURS_MAX"
    )


def _samples_by_app(messages: Sequence[tuple[int, Parsed, str]]) -> dict[int, int]:
    """Return the number of samples of each app that has any."""
    samples: dict[int, int] = {}
    for app, parsed, _ in messages:
        if len(parsed.ts):
            samples[app] = samples.get(app, 0) + len(parsed.ts)
    return samples


def _first_times(messages: Sequence[tuple[int, Parsed, str]], times_of_all: I64) -> list[int]:
    """Return the earliest time of each message; the greatest number for one without samples."""
    sizes = np.array([len(parsed.ts) for _, parsed, _ in messages], np.int64)
    first: I64 = np.full(len(messages), np.iinfo(np.int64).max)
    if sizes.any():
        starts = (np.cumsum(sizes) - sizes)[sizes > 0]
        first[sizes > 0] = np.minimum.reduceat(times_of_all, starts)
    earliest: list[int] = first.tolist()
    return earliest


def _without_wrong_times(parsed: Parsed, now_ms: int, oldest_ms: int, unit: str) -> Parsed:
    """Remove samples that are older than anything the app keeps, or were read in the wrong unit."""
    first = int(parsed.ts.min())
    if first >= max(oldest_ms, times.MISREAD_MS):
        return parsed
    for factor in _FACTORS:
        meant = _unit_meant(unit, factor)
        if meant:
            wrong = (parsed.ts < times.MISREAD_MS) & times.is_recent(parsed.ts, now_ms, factor)
            parsed = _without_samples(parsed, wrong, times.describe_misread(meant, unit))
    old = parsed.ts < oldest_ms
    return _without_samples(parsed, old, times.TOO_OLD) if old.any() else parsed


def _unit_meant(unit: str, factor: int) -> str:
    """Return the unit that makes numbers read as ``unit`` larger by ``factor``; "" if there is none."""
    place = _UNITS.index(unit) + _FACTORS.index(factor) + 1
    return _UNITS[place] if place < len(_UNITS) else ""


def _without_series(parsed: Parsed, over: BOOL, quota_series: int) -> Parsed:
    """Remove the samples of series over the quota; each series becomes one rejection, by its first sample."""
    wrong = over[parsed.series_index]
    telemetry.REFUSED_SERIES.inc(int(over.sum()))
    reason = f"a new series over the app's quota of {quota_series:,} series; those it has are taken as before"
    room = max(0, limits.REJECTIONS_MAX - len(parsed.rejections))
    at = np.flatnonzero(wrong)
    first = np.unique(parsed.series_index[at], return_index=True)[1]
    rows = np.sort(at[first])[:room].tolist()
    texts = (_text(parsed.series, int(parsed.series_index[row])) for row in rows)
    return _only(parsed, ~wrong, _rejections(parsed, rows, reason, texts))


def _without_samples(parsed: Parsed, wrong: BOOL, reason: str) -> Parsed:
    if not wrong.any():
        return parsed
    room = max(0, limits.REJECTIONS_MAX - len(parsed.rejections))
    rows = np.flatnonzero(wrong)[:room].tolist()
    texts = (f"{_text(parsed.series, int(parsed.series_index[row]))} at {int(parsed.ts[row])} ms" for row in rows)
    return _only(parsed, ~wrong, _rejections(parsed, rows, reason, texts))


def _rejections(parsed: Parsed, rows: list[int], reason: str, texts: Iterable[str]) -> tuple[Rejection, ...]:
    """Return these samples as rejections, each with its line or item if the protocol has such numbers."""
    lines = parsed.places(rows) if parsed.places and rows else [0] * len(rows)
    return tuple(Rejection(line, reason, text) for line, text in zip(lines, texts, strict=True))


def _only(parsed: Parsed, rows: BOOL, rejections: tuple[Rejection, ...]) -> Parsed:
    """Return these samples with only the series that they use: every series of a table is registered."""
    used, index = np.unique(parsed.series_index[rows], return_inverse=True)
    places, numbers = parsed.places, np.flatnonzero(rows)
    return replace(
        parsed,
        series=parsed.series.rows(used.astype(np.int64)),
        series_index=index.astype(np.int32),
        ts=parsed.ts[rows],
        values=parsed.values[rows],
        rejections=parsed.rejections + rejections,
        rejected=parsed.rejected + int(len(rows) - rows.sum()),
        places=places and (lambda some: places(numbers[some].tolist())),
    )


def _text(table: SeriesTable, number: int) -> str:
    """Return a series as people write it, cut to the length of an example."""
    metric, labels = parse_canonical(table.canonical(number))
    inside = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return f"{metric}{{{inside}}}"[: limits.REJECTION_EXAMPLE_CHARS_MAX]
