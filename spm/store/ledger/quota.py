"""An app's quotas, as all processes of a site share them: its number of series, and how far it is ahead of its rate.

Four cells of `config` per app, changed by check-and-put alone:

    quota/series/APP   [series, ms of the last recount]      absent: the dictionary is counted once
    quota/rate/APP     [ms at which the app has used up its portions of what comes by HTTP]
    quota/queued/APP   [the same of what agents send through RabbitMQ]
    quota/hours/APP    [the same of hours of the past to which it sends; an hour is so many seconds of its burst]

Processes take portions, not single series or samples, so that a cell seldom changes: what a process that dies has not
used is missing until the next recount. Two processes that register one series at the same moment both count it. Enter
by ``take_series``; by ``take_samples``, which says how long an app over its rate must wait, and ignores what a wrong
clock of another machine has counted ahead; and by ``series_of``.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from spm import limits
from spm.errors import CellContended
from spm.store import keys
from spm.store.backends.base import Backend, Reader, scan_ranges
from spm.store.check_and_put import COLUMN, replace_cell

QUOTA_SKEW_MS = 60_000  # beyond what portions can explain: such a shared moment comes from another machine's clock
_TRIES = 100  # a check-and-put lost so often means a broken store, not company


@dataclass(frozen=True, slots=True)
class RateBucket:
    """One of an app's counts of samples: its name in the cell's key, and the burst that it allows."""

    name: bytes
    burst_s: int


PUSHED = RateBucket(b"rate", limits.QUOTA_BURST_S)
PAST_HOURS = RateBucket(b"hours", 3_600)
QUEUED = RateBucket(b"queued", 3_600)  # what was taken into a queue must not be rejected because we stood still


@dataclass(frozen=True, slots=True)
class Portion:
    """Whether a portion of samples was granted; if not, how long to wait for it."""

    given: bool
    wait_s: float = 0.0


def series_of(reader: Reader, app: int) -> int | None:
    """The number of series of the app, as processes count them; None before the first one."""
    [row] = reader.get("config", [_series_key(app)], [COLUMN])
    numbers = _decoded(row or {})
    return numbers[0] if numbers else None


def take_series(store: Backend, app: int, *, wanted: int, quota: int, now_ms: int) -> int:
    """Take the right to register up to ``wanted`` new series; 0 when the app has reached its quota.

    1. For an app without a cell, the dictionary is counted. 2. The remaining part of the quota is granted. 3. Where
    nothing remains and the last count is an hour old, one process counts the dictionary again.
    """

    def take(row: Mapping[bytes, bytes]) -> tuple[bytes | None, tuple[int, int | None]]:
        count, counted_ms = _decoded(row) or (count_series(store, app, quota), now_ms)
        portion = max(0, min(wanted, quota - count))
        if count >= quota and not 0 <= now_ms - counted_ms < limits.QUOTA_RECOUNT_MS:
            return _encoded(count, now_ms), (0, count)
        return _encoded(count + portion, counted_ms), (portion, None)

    error = f"no portion of series for app {app} after {_TRIES} tries"
    for _ in range(_TRIES):
        portion, to_recount = replace_cell(store, "config", _series_key(app), take, error=error, tries=_TRIES)
        if to_recount is None:
            return portion
        _recount(store, app, quota, to_recount, now_ms)
    raise CellContended(error)


def take_samples(
    store: Backend, app: int, *, wanted: int, rate: int, now_ms: int, bucket: RateBucket = PUSHED
) -> Portion:
    """Take the right to ``wanted`` samples at ``rate`` a second, with the bucket's burst, at most a burst.

    The cell is the moment at which all granted samples are used up at the app's rate. A moment further ahead than two
    bursts, one used and one granted at once, comes from another machine's clock: this process then counts for itself.
    """
    burst_ms = bucket.burst_s * 1_000

    def take(row: Mapping[bytes, bytes]) -> tuple[bytes | None, Portion]:
        [spent_ms] = _decoded(row) or [now_ms]
        ahead_ms = max(spent_ms, now_ms) - now_ms
        if ahead_ms > 2 * burst_ms + QUOTA_SKEW_MS:
            return None, Portion(True)
        if ahead_ms > burst_ms:
            return None, Portion(False, (ahead_ms - burst_ms) / 1_000)
        return _encoded(now_ms + ahead_ms + -(-wanted * 1_000 // rate)), Portion(True)

    error = f"no portion of samples for app {app} after {_TRIES} tries"
    return replace_cell(store, "config", _rate_key(app, bucket), take, error=error, tries=_TRIES)


def take_past_hours(store: Backend, app: int, *, hours: int, hours_max: int, now_ms: int) -> bool:
    """Take the right to send to so many hours of the past, of ``hours_max`` within an hour; whether it was granted."""
    seconds = min(hours, hours_max) * PAST_HOURS.burst_s
    return take_samples(store, app, wanted=seconds, rate=hours_max, now_ms=now_ms, bucket=PAST_HOURS).given


def count_series(reader: Reader, app: int, at_most: int) -> int:
    """Count the series in the app's dictionary, up to one more than a bound."""
    count = 0
    for _ in scan_ranges(reader, "series", keys.series_ranges(app)):
        count += 1
        if count > at_most:
            break
    return count


def _recount(store: Backend, app: int, quota: int, before: int, now_ms: int) -> None:
    """Correct what unused portions and double counts have added, unless others took portions meanwhile."""
    true = count_series(store, app, quota)

    def corrected(row: Mapping[bytes, bytes]) -> tuple[bytes | None, None]:
        return _encoded(true, now_ms) if _decoded(row) == [before, now_ms] else None, None

    error = f"the count of series of app {app} kept changing"
    replace_cell(store, "config", _series_key(app), corrected, error=error)


def _decoded(row: Mapping[bytes, bytes]) -> list[int] | None:
    return msgspec.msgpack.decode(row[COLUMN], type=list[int]) if COLUMN in row else None


def _encoded(*numbers: int) -> bytes:
    return msgspec.msgpack.encode(numbers)


def keys_of(app: int) -> list[bytes]:
    """The keys of an app's cells in `config`."""
    return [_series_key(app), *(_rate_key(app, bucket) for bucket in (PUSHED, QUEUED, PAST_HOURS))]


def _series_key(app: int) -> bytes:
    return b"quota/series/%d" % app


def _rate_key(app: int, bucket: RateBucket) -> bytes:
    return b"quota/%b/%d" % (bucket.name, app)
