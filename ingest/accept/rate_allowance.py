"""The rates of apps: samples a second, and hours of the past to which they send within an hour.

Enter by ``RateAllowances``, what this process may still take of each app's samples before it asks the store again:
``check`` before a body is read, ``charge`` once it is parsed. ``PastHours.over_quota`` bounds work that no count of
samples bounds: each hour of the past costs rows and a part of a run, however few its samples are. Processes share the
counts in ``spm.store.ledger.quota``; while the store does not answer, no body is refused here, and few ask it
(``StorePause``). ``TooFast`` is the text of the 429.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from ingest.accept.store_pause import StorePause
from spm import limits, telemetry
from spm.accounts.quotas import Quota
from spm.arrays import BOOL, I64
from spm.bounded import LruCache
from spm.clock import Clock
from spm.errors import LimitExceeded, StoreUnavailable
from spm.store.backends.base import Backend
from spm.store.id_set import IdSet
from spm.store.ledger import quota
from spm.wire import hour_of


class TooFast(LimitExceeded):
    """An app sends more samples than its rate allows: it may send again after ``wait_s``."""

    def __init__(self, rate: int, wait_s: float) -> None:
        self.wait_s = wait_s
        super().__init__(
            "the app sends more samples than its rate allows",
            wanted=f"at most {rate:,} a second on average",
            remedy="Send the same body again after Retry-After seconds. Staff can change the rate: for this app on its "
            "page of the admin console (samples a second at most), for all others by the setting SPM_APP_RATE_MAX.",
        )


@dataclass(slots=True)
class RateAllowance:
    """Samples that one process may still take of an app's rate, and until when it need not ask the store again.

    ``samples`` is below 0 after a body that was larger than the rest of the allowance. Until ``unlimited_until`` the
    app is known to have no rate. Both times are monotonic seconds.
    """

    samples: float = 0.0
    closed_until: float = 0.0
    unlimited_until: float = 0.0


class RateAllowances:
    """The allowances of all apps in one process. Thread-safe. ``bucket``: which of an app's counts it takes from."""

    def __init__(
        self,
        store: Backend,
        clock: Clock,
        quota_of: Callable[[int], Quota],
        pause: StorePause,
        bucket: quota.RateBucket = quota.PUSHED,
    ) -> None:
        self._store, self._clock, self._quota_of, self._pause = store, clock, quota_of, pause
        self._bucket = bucket
        self._lock = threading.Lock()
        self._allowances: LruCache[int, RateAllowance] = LruCache(limits.QUOTA_APPS_MAX)

    def check(self, app: int) -> None:
        """Raise ``TooFast`` for an app that has used up its rate."""
        now = self._clock.monotonic()
        with self._lock:
            allowance = self._allowance(app)
        if allowance.samples > 0 or now < allowance.unlimited_until:
            return
        rate = self._quota_of(app).samples_per_s
        if rate is None:
            allowance.samples, allowance.unlimited_until = 0.0, now + limits.QUOTA_CACHE_S
            return
        if now < allowance.closed_until:
            raise TooFast(rate, allowance.closed_until - now)
        if not self._pause.may_ask():
            return
        burst_s = self._bucket.burst_s
        portion = min(max(rate * limits.QUOTA_PORTION_S, rate - allowance.samples), rate * burst_s)
        take = partial(quota.take_samples, self._store, app, wanted=int(portion), rate=rate, bucket=self._bucket)
        try:
            turn = self._pause.ask(partial(take, now_ms=self._clock.now_ms()))
        except StoreUnavailable:
            self._pause.failed()
            return
        self._pause.answered()
        with self._lock:
            allowance.samples += portion if turn.given else 0.0
            if allowance.samples > 0:
                return
            wait_s = turn.wait_s or min(burst_s, -allowance.samples / rate)
            allowance.closed_until = now + wait_s
        telemetry.REFUSED_BODIES.labels("rate").inc()
        raise TooFast(rate, wait_s)

    def has_allowance(self, app: int) -> bool:
        """Whether ``check`` returns without asking the store."""
        allowance = self._allowances.get(app)
        if allowance is None:
            return False
        return allowance.samples > 0 or self._clock.monotonic() < allowance.unlimited_until

    def charge(self, app: int, samples: int) -> None:
        """Take the samples of a body off the app's allowance, unless the app has no rate."""
        now = self._clock.monotonic()
        with self._lock:
            allowance = self._allowance(app)
            if now >= allowance.unlimited_until:
                allowance.samples -= samples

    def _allowance(self, app: int) -> RateAllowance:
        """Return the app's allowance; under the lock, so that two first bodies do not make one each."""
        allowance = self._allowances.get(app)
        if allowance is None:
            allowance = RateAllowance()
            self._allowances.put(app, allowance)
        return allowance


class PastHours:
    """Hours of the past to which apps have sent through this process within this hour. Thread-safe."""

    def __init__(self, store: Backend, clock: Clock, pause: StorePause) -> None:
        self._store, self._clock, self._pause = store, clock, pause
        self._lock = threading.Lock()
        self._granted = IdSet()  # hours since 1970, each with its app as tag
        self._granted_in = 0  # the hour in which they were granted

    def over_quota(self, app: int, ts: I64, hours_max: int | None) -> BOOL | None:
        """Return a mask of the samples whose hours are over the app's quota; ``None`` if all are admitted.

        Hours of the past that this process was granted within this hour are free; all others of a body are granted, or
        none.
        """
        now_ms = self._clock.now_ms()
        is_past = ts < now_ms - limits.LIVE_HOURS * limits.HOUR_MS
        if hours_max is None or not is_past.any():
            return None
        hours = np.unique(hour_of(ts[is_past])).astype(np.uint64)
        new = hours[~self._known(now_ms).contains(hours, np.full(len(hours), app, np.uint32))]
        if not len(new) or not self._pause.may_ask():
            return None
        take = partial(quota.take_past_hours, self._store, app, hours=len(new), hours_max=hours_max, now_ms=now_ms)
        try:
            is_granted = self._pause.ask(take)
        except StoreUnavailable:
            self._pause.failed()
            return None
        self._pause.answered()
        if is_granted:
            self._known(now_ms).add(new, np.full(len(new), app, np.uint32))
            return None
        mask: BOOL = is_past & np.isin(hour_of(ts), new.astype(np.int64))
        return mask

    def _known(self, now_ms: int) -> IdSet:
        """Return the set of this hour; one that has become too large is forgotten, and its hours count once more."""
        with self._lock:
            if self._granted_in != now_ms // limits.HOUR_MS or len(self._granted) > limits.QUOTA_KNOWN_MAX:
                self._granted, self._granted_in = IdSet(), now_ms // limits.HOUR_MS
            return self._granted
