"""What an app may send: at which rate, how many series, of which times. Enter by ``Guard``, one per process.

The rate is looked at before a body is read (``pace``) and charged behind it (``admit``): a sender that is over it costs
next to nothing. New series over the quota are left out and named, the others flow on. A series is new when neither this
process nor the dictionary knows it; a set of series that was let in once is found again by one hash. Times before all
retention, or decades ago where another unit would make them now, are left out likewise. What processes share of the
counts stands in ``spm.store.ledger.quota``; when the store does not answer, nobody is refused here.
"""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from ingest.protocols.common import times
from spm import limits, telemetry
from spm.accounts import quotas
from spm.accounts.quotas import Quota
from spm.arrays import BOOL, I64, U64
from spm.clock import Clock
from spm.errors import LimitExceeded, StoreUnavailable
from spm.store import keys
from spm.store.backends.base import Backend
from spm.store.dictionary import COLUMN
from spm.store.ledger import quota
from spm.wire import Parsed, Rejection, SeriesTable, parse_canonical

_NONE = np.empty(0, np.uint64)
_FACTORS = (1_000, 1_000_000, 1_000_000_000)
_UNITS = ("ns", "us", "ms", "s")


class TooFast(LimitExceeded):
    """An app sends more samples than its rate allows: it may come again after ``wait_s``."""

    def __init__(self, rate: int, wait_s: float) -> None:
        self.wait_s = wait_s
        super().__init__(
            "the app sends more samples than its rate allows",
            wanted=f"at most {rate:,} a second on average",
            remedy="Send the same body again after Retry-After seconds; staff can raise the rate.",
        )


@dataclass(slots=True)
class _Purse:
    """What one process may still take of an app's rate (below 0: what a large body took beforehand), and until when it
    need not ask again."""

    left: float = 0.0
    closed_until: float = 0.0


class _Known:
    """What one process knows of one app's series: those let in, those refused lately, and rights not yet used."""

    def __init__(self) -> None:
        self.ids: U64 = _NONE  # sorted
        self.refused: set[int] = set()
        self.refused_until = 0.0  # monotonic seconds; then the refused are looked at again
        self.rights = 0


class Guard:
    """Thread-safe. ``quota_of`` says what an app may; the store holds what processes share."""

    def __init__(self, store: Backend, clock: Clock, quota_of: Callable[[int], Quota] = quotas.of) -> None:
        self._store, self._clock, self._quota_of = store, clock, quota_of
        self._lock = threading.Lock()
        self._purses: dict[int, _Purse] = {}
        self._known: dict[int, _Known] = {}
        self._sets: dict[tuple[int, int], None] = {}  # (app, hash of ids) of tables that were let in whole
        self._crowds: dict[int, float] = {}  # app → until when it counts as one that brings too many series

    def pace(self, app: int) -> None:
        """Raise ``TooFast`` for an app that has used up its rate."""
        now, purse = self._clock.monotonic(), self._purse(app)
        if purse.left > 0:
            return
        rate = self._quota_of(app).samples_per_s
        if now < purse.closed_until:
            raise TooFast(rate, purse.closed_until - now)
        portion = min(max(rate * limits.QUOTA_PORTION_S, rate - purse.left), rate * limits.QUOTA_BURST_S)
        try:
            turn = quota.take_samples(self._store, app, wanted=int(portion), rate=rate, now_ms=self._clock.now_ms())
        except StoreUnavailable:
            return
        with self._lock:
            purse.left += portion if turn.given else 0.0
            if purse.left > 0:
                return
            wait_s = turn.wait_s or min(limits.QUOTA_BURST_S, -purse.left / rate)
            purse.closed_until = now + wait_s
        telemetry.REFUSED_BODIES.labels("rate").inc()
        raise TooFast(rate, wait_s)

    def crowded(self, app: int) -> bool:
        """Whether the app brought series over its quota lately: what it names is then not worth remembering."""
        return self._crowds.get(app, 0.0) > self._clock.monotonic()

    def admit(self, app: int, parsed: Parsed, unit: str = "ms") -> Parsed:
        """What of a body may come in; ``unit``: that of its times as sent. Also charges the app's rate."""
        if not len(parsed.ts):
            return parsed
        with self._lock:
            self._purse(app).left -= len(parsed.ts)
        allowed = self._quota_of(app)
        now_ms = self._clock.now_ms()
        kept = _in_time(parsed, now_ms, allowed.oldest_ms(now_ms), unit)
        name = (app, hash(kept.series.ids.tobytes()))
        if name in self._sets:
            return kept
        refused = self._refused(app, kept.series, allowed.series)
        if refused is None:
            self._remember(name)
            return kept
        return _without_series(kept, refused, allowed.series)

    def _purse(self, app: int) -> _Purse:
        purse = self._purses.get(app)
        if purse is None:
            if len(self._purses) >= limits.QUOTA_APPS_MAX:
                self._purses = {}
            purse = self._purses.setdefault(app, _Purse())
        return purse

    def _remember(self, name: tuple[int, int]) -> None:
        if len(self._sets) >= limits.QUOTA_SETS_MAX:
            self._sets = {}
        self._sets[name] = None

    def _refused(self, app: int, table: SeriesTable, most: int) -> BOOL | None:
        """Which series of a table may not come in; None if all may. One app's new series are looked at in turn.

        1. those this process let in before; 2. those it refused a moment ago; 3. those in the dictionary; 4. of the
        others as many, in their order, as the app has rights for.
        """
        with self._lock:
            known = self._of(app)
            if self._clock.monotonic() >= known.refused_until:
                known.refused = set()
            unknown = np.flatnonzero(~_within(known.ids, table.ids))
            again = [i for i in unknown.tolist() if int(table.ids[i]) in known.refused] if known.refused else []
        ask = np.setdiff1d(unknown, np.array(again, np.int64)) if again else unknown
        try:
            new = self._not_in_dictionary(app, table, ask)
            over = self._over(app, known, new, most)
        except StoreUnavailable:
            return None
        with self._lock:
            self._learn(known, table.ids[np.setdiff1d(ask, over)])
            refused = [*again, *over.tolist()]
            if not refused:
                return None
            self._note(app, known, table.ids[over])
        mask = np.zeros(len(table), np.bool_)
        mask[refused] = True
        return mask

    def _of(self, app: int) -> _Known:
        known = self._known.get(app)
        if known is None:
            if sum(len(each.ids) for each in self._known.values()) > limits.QUOTA_KNOWN_MAX:
                self._known, self._sets = {}, {}  # the store is asked again: slower, never wrong
            known = self._known.setdefault(app, _Known())
        return known

    def _not_in_dictionary(self, app: int, table: SeriesTable, ask: I64) -> I64:
        names = [keys.series(app, int(table.metrics[i]), int(table.ids[i])) for i in ask]
        rows = self._store.get("series", names, [COLUMN]) if names else []
        return ask[np.array([row is None for row in rows], np.bool_)]

    def _over(self, app: int, known: _Known, new: I64, most: int) -> I64:
        """Those of the new series for which there is no right left; rights are taken in portions."""
        with self._lock:
            used = min(known.rights, len(new))
            known.rights -= used
        missing = len(new) - used
        if missing:
            wanted = max(missing, min(limits.QUOTA_SERIES_PORTION, most // 64))
            given = quota.take_series(self._store, app, wanted=wanted, quota=most, now_ms=self._clock.now_ms())
            used += min(given, missing)
            with self._lock:
                known.rights += max(0, given - missing)
        return new[used:]

    def _learn(self, known: _Known, ids: U64) -> None:
        if len(ids):
            known.ids = np.union1d(known.ids, ids)

    def _note(self, app: int, known: _Known, ids: U64) -> None:
        now = self._clock.monotonic()
        if not known.refused:
            known.refused_until = now + limits.QUOTA_REFUSED_S
        if len(known.refused) + len(ids) <= limits.QUOTA_REFUSED_MAX:
            known.refused.update(ids.tolist())
        if len(self._crowds) >= limits.QUOTA_APPS_MAX:
            self._crowds = {}
        self._crowds[app] = now + limits.QUOTA_CROWD_S


def _within(known: U64, ids: U64) -> BOOL:
    if not len(known):
        return np.zeros(len(ids), np.bool_)
    at = np.minimum(np.searchsorted(known, ids), len(known) - 1)
    found: BOOL = known[at] == ids
    return found


def _in_time(parsed: Parsed, now_ms: int, oldest_ms: int, unit: str) -> Parsed:
    """Without samples that are older than anything kept, or read in the wrong unit."""
    first = int(parsed.ts.min())
    if first >= max(oldest_ms, times.MISREAD_MS):
        return parsed
    for factor in _FACTORS:
        meant = _unit_meant(unit, factor)
        if meant:
            wrong = (parsed.ts < times.MISREAD_MS) & times.is_recent(parsed.ts, now_ms, factor)
            parsed = _without(parsed, wrong, times.worded_misread(meant, unit))
    old = parsed.ts < oldest_ms
    return _without(parsed, old, times.TOO_OLD) if old.any() else parsed


def _unit_meant(unit: str, factor: int) -> str:
    """The unit that makes numbers read as ``unit`` a factor larger; none if there is none."""
    place = _UNITS.index(unit) + _FACTORS.index(factor) + 1
    return _UNITS[place] if place < len(_UNITS) else ""


def _without_series(parsed: Parsed, refused: BOOL, most: int) -> Parsed:
    """Without the samples of refused series, each of which is named."""
    wrong = refused[parsed.series_index]
    telemetry.REFUSED_SERIES.inc(int(refused.sum()))
    reason = f"a new series over the app's quota of {most:,} series; those it has are taken as before"
    room = max(0, limits.REJECTIONS_MAX - len(parsed.rejections))
    at = np.flatnonzero(wrong)
    first = np.unique(parsed.series_index[at], return_index=True)[1]
    rows = np.sort(at[first])[:room].tolist()
    texts = (_text(parsed.series, int(parsed.series_index[row])) for row in rows)
    return _kept(parsed, ~wrong, _told(parsed, rows, reason, texts))


def _without(parsed: Parsed, wrong: BOOL, reason: str) -> Parsed:
    if not wrong.any():
        return parsed
    room = max(0, limits.REJECTIONS_MAX - len(parsed.rejections))
    rows = np.flatnonzero(wrong)[:room].tolist()
    texts = (f"{_text(parsed.series, int(parsed.series_index[row]))} at {int(parsed.ts[row])} ms" for row in rows)
    return _kept(parsed, ~wrong, _told(parsed, rows, reason, texts))


def _told(parsed: Parsed, rows: list[int], reason: str, texts: Iterable[str]) -> tuple[Rejection, ...]:
    """These samples as rejections, each with its line or item, where the protocol knows of any."""
    lines = parsed.places(rows) if parsed.places and rows else [0] * len(rows)
    return tuple(Rejection(line, reason, text) for line, text in zip(lines, texts, strict=True))


def _kept(parsed: Parsed, rows: BOOL, told: tuple[Rejection, ...]) -> Parsed:
    """These samples, with only the series that they have: a table's others would be registered, too."""
    used, index = np.unique(parsed.series_index[rows], return_inverse=True)
    places, stood = parsed.places, np.flatnonzero(rows)
    return replace(
        parsed,
        series=parsed.series.rows(used.astype(np.int64)),
        series_index=index.astype(np.int32),
        ts=parsed.ts[rows],
        values=parsed.values[rows],
        rejections=parsed.rejections + told,
        rejected=parsed.rejected + int(len(rows) - rows.sum()),
        places=places and (lambda some: places(stood[some].tolist())),
    )


def _text(table: SeriesTable, number: int) -> str:
    """A series as people write it, as far as an example goes."""
    metric, labels = parse_canonical(table.canonical(number))
    inside = ",".join(f'{name}="{value}"' for name, value in labels.items())
    return f"{metric}{{{inside}}}"[: limits.REJECTION_EXAMPLE_CHARS_MAX]
