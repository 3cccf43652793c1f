"""Accounts for people: where an app's samples are now, what became of those of some hours, and which never came.

Enter by ``now`` and ``span``. Sums of hours are kept by this process: final ones for long, those that may change for
some seconds only, so that a page that is looked at again costs the newest hours. Nothing here writes.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from spm import limits
from spm.errors import SpmError
from spm.limits import HOUR_MS
from spm.store.backends.base import Backend
from spm.store.ledger import balance_hours, watermarks
from spm.store.ledger.balance import Balance, BalanceSummary, ProcessBalance, read_balance, summarize
from spm.store.ledger.balance_hours import HourBalance, NumberGap
from spm.store.ledger.commit_columns import CommitCellCache


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a table: messages and samples of an hour, of a source, of both, or of all."""

    start_ms: int
    source: str
    messages: int
    stored: int
    late: int
    rejected: int
    dead: int

    @property
    def accepted(self) -> int:
        """Samples that were settled."""
        return self.stored + self.late + self.rejected + self.dead

    @property
    def lost(self) -> int:
        """Samples that no answer shows."""
        return self.late + self.rejected + self.dead


@dataclass(frozen=True, slots=True)
class Span:
    """What became of messages stamped in some hours."""

    first_ms: int
    until_ms: int
    hours: tuple[HourBalance, ...]
    gaps: tuple[NumberGap, ...] = field(default=())  # the newest first
    gaps_cut: bool = False

    def lines(self) -> Iterator[Line]:
        """By hour and source, the newest hour first."""
        for hour in reversed(self.hours):
            yield from _lines(hour)

    def by_hour(self) -> list[Line]:
        """Of all sources together, the newest hour first; also of hours without a message."""
        return [_added(hour.start_ms, "", _lines(hour)) for hour in reversed(self.hours)]

    def by_source(self) -> list[Line]:
        """Of all hours together: those that lost most first, then those that sent most."""
        found: dict[str, list[Line]] = {}
        for line in self.lines():
            found.setdefault(line.source, []).append(line)
        sums = [_added(self.first_ms, source, lines) for source, lines in found.items()]
        return sorted(sums, key=lambda line: (-line.lost, -line.messages, line.source))

    def whole(self) -> Line:
        """Of everything."""
        return _added(self.first_ms, "", self.by_hour())

    @property
    def damaged(self) -> int:
        """Rows that could not be read."""
        return max((hour.damaged for hour in self.hours), default=0)

    @property
    def missing_messages(self) -> int:
        """In all gaps."""
        return sum(gap.count for gap in self.gaps)


def now(store: Backend, app: int, now_ms: int) -> Balance:
    """Where everything is that the app's senders ever had accepted."""
    with store.snapshot() as reader:
        return read_balance(reader, app, now_ms, cells=_CELLS)


def glimpse(store: Backend, app: int, now_ms: int) -> BalanceSummary | None:
    """The account as marks alone tell it, for lists of apps; ``None`` when they cannot be read."""
    try:
        return summarize(store, app, now_ms)
    except SpmError:
        return None


def of_interest(found: Balance) -> list[ProcessBalance]:
    """Processes that live, or with whom something is to be settled or does not add up, the newest first."""
    shown = [p for p in found.processes if not p.gone or p.samples.waiting or p.messages.missing or p.samples.missing]
    return sorted(shown, key=lambda p: -p.last_ms)[: limits.ACCOUNT_SOURCES_SHOWN]


def span(store: Backend, app: int, now_ms: int, hours: int) -> Span:
    """The last ``hours``, the one under way included."""
    last = now_ms // HOUR_MS
    first = last - min(max(hours, 1), limits.ACCOUNT_HOURS_MAX) + 1
    found = tuple(_KEPT.hours(store, app, first, last, now_ms))
    gaps = sorted(balance_hours.gaps(found), key=lambda gap: -gap.before_ms)
    return Span(first * HOUR_MS, now_ms, found, tuple(gaps), any(hour.runs_cut for hour in found))


def _lines(hour: HourBalance) -> list[Line]:
    columns = (hour.messages, hour.stored, hour.late, hour.rejected, hour.dead)
    rows = zip(hour.sources, *(column.tolist() for column in columns), strict=True)
    return [Line(hour.start_ms, *row) for row in rows]


def _added(start_ms: int, source: str, lines: Sequence[Line]) -> Line:
    names = ("messages", "stored", "late", "rejected", "dead")
    return Line(start_ms, source, *(sum(getattr(line, name) for line in lines) for name in names))


@dataclass(frozen=True, slots=True)
class _Entry:
    """A summed hour of a store, and until when it may be told."""

    store: Backend
    hour: HourBalance
    until_ms: int

    @property
    def weight(self) -> int:
        """In rows."""
        return 1 + len(self.hour.sources) + len(self.hour.runs)


class _Kept:
    """Summed hours that this process remembers, up to two bounds; those not used for longest go first. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readers = threading.BoundedSemaphore(limits.ACCOUNT_READERS)
        self._found: OrderedDict[tuple[int, int], _Entry] = OrderedDict()
        self._weight = 0

    def hours(self, store: Backend, app: int, first: int, last: int, now_ms: int) -> list[HourBalance]:
        """The hours asked for, in order; those that are not known are read in stretches of neighbours."""
        with self._lock:
            known = {n: self._fresh(store, app, n, now_ms) for n in range(first, last + 1)}
        unknown = [n for n, hour in known.items() if hour is None]
        if unknown:
            with self._readers, store.snapshot() as reader:
                final = balance_hours.final_before(watermarks.read(reader, app), now_ms)
                for begin, end in _stretches(unknown):
                    for hour in balance_hours.read_hours(reader, app, begin, end, _CELLS):
                        keep_ms = HOUR_MS if hour.number < final else limits.ACCOUNT_RECENT_MS
                        known[hour.number] = hour
                        self._put(app, _Entry(store, hour, now_ms + keep_ms))
        return [hour for _, hour in sorted(known.items()) if hour is not None]

    def _fresh(self, store: Backend, app: int, number: int, now_ms: int) -> HourBalance | None:
        entry = self._found.get((app, number))
        if entry is None or entry.store is not store or not now_ms < entry.until_ms <= now_ms + HOUR_MS:
            return None
        self._found.move_to_end((app, number))
        return entry.hour

    def _put(self, app: int, entry: _Entry) -> None:
        with self._lock:
            old = self._found.pop((app, entry.hour.number), None)
            self._found[app, entry.hour.number] = entry
            self._weight += entry.weight - (old.weight if old else 0)
            while len(self._found) > limits.ACCOUNT_HOURS_KEPT or self._weight > limits.ACCOUNT_ROWS_KEPT:
                self._weight -= self._found.popitem(last=False)[1].weight


def _stretches(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(first, last) of each row of neighbours among ascending numbers."""
    begin = 0
    for i in range(1, len(numbers) + 1):
        if i == len(numbers) or numbers[i] != numbers[i - 1] + 1:
            yield numbers[begin], numbers[i - 1]
            begin = i


_KEPT = _Kept()
_CELLS = CommitCellCache()
