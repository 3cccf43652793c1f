"""What all processes of a site share of an app's quotas: how many series it has, and how far ahead of its rate it is.

Two cells of `config` per app, changed by check-and-put alone:

    quota/series/APP   [series, ms of the last recount]      absent: the dictionary is counted once
    quota/rate/APP     [ms at which the app has used up what it was given]

Processes take portions, not single series or samples, so that a cell is touched seldom: what a process that dies has
not used is lost until the next recount. Two that register one series at the same moment both count it. Enter by
``take_series``, ``take_samples`` and ``series_of``.
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from spm import limits
from spm.errors import StoreUnavailable
from spm.store import keys
from spm.store.backends.base import Backend, Reader
from spm.store.backends.ranges import scan_ranges

_COLUMN = b"v"
_TRIES = 100  # a check-and-put lost so often means a broken store, not company


@dataclass(frozen=True, slots=True)
class Portion:
    """Whether a portion of samples was given; if not, how long to wait for it."""

    given: bool
    wait_s: float = 0.0


def series_of(reader: Reader, app: int) -> int | None:
    """How many series the app has, as processes count them; None before the first."""
    found = _read(reader, _series_key(app))[1]
    return None if found is None else int(found[0])


def take_series(store: Backend, app: int, *, wanted: int, quota: int, now_ms: int) -> int:
    """The right to register up to ``wanted`` series that are in no dictionary yet; 0 when the app has its quota.

    1. what is left of the quota is given; 2. where nothing is left and nobody has counted for an hour, one process
    counts the dictionary anew, and what that frees is given; 3. an app without a cell is counted first.
    """
    for _ in range(_TRIES):
        was, found = _read(store, _series_key(app))
        count, counted_ms = found if found is not None else (None, 0)
        if count is None:
            _put(store, _series_key(app), was, [count_series(store, app, quota), now_ms])
        elif count < quota:
            given = min(wanted, quota - count)
            if _put(store, _series_key(app), was, [count + given, counted_ms]):
                return int(given)
        elif not 0 <= now_ms - counted_ms < limits.QUOTA_RECOUNT_MS:
            if _put(store, _series_key(app), was, [count, now_ms]):
                _recount(store, app, quota, count, now_ms)
        else:
            return 0
    raise StoreUnavailable(f"no portion of series for app {app} after {_TRIES} tries")


def take_samples(store: Backend, app: int, *, wanted: int, rate: int, now_ms: int) -> Portion:
    """The right to ``wanted`` samples at ``rate`` a second, with a burst of ``QUOTA_BURST_S``; at most a burst at once.

    The cell is the moment at which all that was given is used up at the app's rate. One that lies further ahead than
    bursts can have put it comes of another machine's clock: this process then counts for itself.
    """
    burst_ms = limits.QUOTA_BURST_S * 1_000
    for _ in range(_TRIES):
        was, found = _read(store, _rate_key(app))
        spent_ms = max(int(found[0]), now_ms) if found is not None else now_ms
        ahead_ms = spent_ms - now_ms
        if ahead_ms > burst_ms + limits.QUOTA_SKEW_MS:
            return Portion(True)
        if ahead_ms > burst_ms:
            return Portion(False, (ahead_ms - burst_ms) / 1_000)
        if _put(store, _rate_key(app), was, [spent_ms + -(-wanted * 1_000 // rate)]):
            return Portion(True)
    raise StoreUnavailable(f"no portion of samples for app {app} after {_TRIES} tries")


def count_series(reader: Reader, app: int, at_most: int) -> int:
    """Series in the app's dictionary, counted up to one more than a bound."""
    count = 0
    for _ in scan_ranges(reader, "series", keys.series_ranges(app)):
        count += 1
        if count > at_most:
            break
    return count


def _recount(store: Backend, app: int, quota: int, before: int, now_ms: int) -> None:
    """Put right what portions of dead processes and double counts have added; what was given meanwhile stays."""
    true = count_series(store, app, quota)
    was, found = _read(store, _series_key(app))
    if found is not None and found[0] == before and found[1] == now_ms:
        _put(store, _series_key(app), was, [true, now_ms])


def _read(reader: Reader, key: bytes) -> tuple[bytes | None, Any]:
    [row] = reader.get("config", [key], [_COLUMN])
    was = row[_COLUMN] if row else None
    return was, msgspec.msgpack.decode(was, type=list[int]) if was is not None else None


def _put(store: Backend, key: bytes, was: bytes | None, value: list[int]) -> bool:
    return store.check_and_put("config", key, _COLUMN, was, msgspec.msgpack.encode(value))


def _series_key(app: int) -> bytes:
    return b"quota/series/%d" % app


def _rate_key(app: int) -> bytes:
    return b"quota/rate/%d" % app
