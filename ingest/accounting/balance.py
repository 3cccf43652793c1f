"""Balances for people: where an app's samples are now, their outcomes in some hours, and which messages never came.

Enter by ``read_now`` and ``read_span``. This process caches the sums of hours: final ones for long, those that may
change for some seconds only, so that a page that is loaded again costs the newest hours. Nothing here writes.
"""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from spm import limits
from spm.bounded import LruCache
from spm.errors import SpmError
from spm.limits import HOUR_MS
from spm.store.backends.base import Backend
from spm.store.ledger import balance_hours, watermarks
from spm.store.ledger.balance import Balance, BalanceSummary, ProcessBalance, read_balance, summarize
from spm.store.ledger.balance_hours import HourBalance, NumberGap
from spm.store.ledger.commit_columns import CommitCellCache


@dataclass(frozen=True, slots=True)
class BalanceLine:
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
        """All samples with an outcome."""
        return self.stored + self.late + self.rejected + self.dead

    @property
    def lost(self) -> int:
        """Samples that no answer shows."""
        return self.late + self.rejected + self.dead


@dataclass(frozen=True, slots=True)
class HourSpan:
    """The outcomes of messages stamped in some hours."""

    first_ms: int
    until_ms: int
    hours: tuple[HourBalance, ...]
    gaps: tuple[NumberGap, ...] = field(default=())  # the newest first
    gaps_cut: bool = False

    def lines(self) -> Iterator[BalanceLine]:
        """Yield a line per hour and source, the newest hour first."""
        for hour in reversed(self.hours):
            yield from _lines(hour)

    def by_hour(self) -> list[BalanceLine]:
        """Return a line per hour, the newest first, also for hours without a message."""
        return [_sum(hour.start_ms, "", _lines(hour)) for hour in reversed(self.hours)]

    def by_source(self) -> list[BalanceLine]:
        """Return a line per source: those that lost most first, then those that sent most."""
        lines_of: dict[str, list[BalanceLine]] = {}
        for line in self.lines():
            lines_of.setdefault(line.source, []).append(line)
        sums = [_sum(self.first_ms, source, lines) for source, lines in lines_of.items()]
        return sorted(sums, key=lambda line: (-line.lost, -line.messages, line.source))

    def total(self) -> BalanceLine:
        """Return the sum of all lines."""
        return _sum(self.first_ms, "", self.by_hour())

    @property
    def damaged(self) -> int:
        """The number of rows that could not be read."""
        return max((hour.damaged for hour in self.hours), default=0)

    @property
    def missing_messages(self) -> int:
        """The number of messages in all gaps."""
        return sum(gap.count for gap in self.gaps)


def read_now(store: Backend, app: int, now_ms: int) -> Balance:
    """Return where all samples are that the app's senders ever had accepted."""
    with store.snapshot() as reader:
        return read_balance(reader, app, now_ms, cells=_CELLS)


def read_summary(store: Backend, app: int, now_ms: int) -> BalanceSummary | None:
    """Return the balance by watermarks alone, for lists of apps; ``None`` when they cannot be read."""
    try:
        return summarize(store, app, now_ms)
    except SpmError:
        return None


def notable_processes(balance: Balance) -> list[ProcessBalance]:
    """Return processes that live, have unsettled messages, or do not add up, the newest first."""
    notable = [
        p for p in balance.processes if not p.gone or p.samples.waiting or p.messages.missing or p.samples.missing
    ]
    return sorted(notable, key=lambda p: -p.last_ms)[: limits.BALANCE_SOURCES_SHOWN]


def read_span(store: Backend, app: int, now_ms: int, hours: int) -> HourSpan:
    """Return the last ``hours``, the present one included."""
    last = now_ms // HOUR_MS
    first = last - min(max(hours, 1), limits.BALANCE_HOURS_MAX) + 1
    balances = tuple(_HOURS.read(store, app, first, last, now_ms))
    gaps = sorted(balance_hours.find_gaps(balances), key=lambda gap: -gap.before_ms)
    return HourSpan(first * HOUR_MS, now_ms, balances, tuple(gaps), any(hour.runs_cut for hour in balances))


def _lines(hour: HourBalance) -> list[BalanceLine]:
    columns = (hour.messages, hour.stored, hour.late, hour.rejected, hour.dead)
    rows = zip(hour.sources, *(column.tolist() for column in columns), strict=True)
    return [BalanceLine(hour.start_ms, *row) for row in rows]


def _sum(start_ms: int, source: str, lines: Sequence[BalanceLine]) -> BalanceLine:
    names = ("messages", "stored", "late", "rejected", "dead")
    return BalanceLine(start_ms, source, *(sum(getattr(line, name) for line in lines) for name in names))


@dataclass(frozen=True, slots=True)
class _Entry:
    """A summed hour of a store, and until when it may be shown."""

    store: Backend
    hour: HourBalance
    until_ms: int

    @property
    def weight(self) -> int:
        """The number of its rows."""
        return 1 + len(self.hour.sources) + len(self.hour.runs)


class _HourCache:
    """Summed hours that this process remembers. Thread-safe."""

    def __init__(self) -> None:
        self._readers = threading.BoundedSemaphore(limits.BALANCE_READERS)
        self._entries: LruCache[tuple[int, int], _Entry] = LruCache(
            limits.BALANCE_ROWS_CACHED, count_max=limits.BALANCE_HOURS_CACHED
        )

    def read(self, store: Backend, app: int, first: int, last: int, now_ms: int) -> list[HourBalance]:
        """Return these hours in order; unknown ones are read in stretches of neighbours."""
        known = {n: self._fresh(store, app, n, now_ms) for n in range(first, last + 1)}
        unknown = [n for n, hour in known.items() if hour is None]
        if unknown:
            with self._readers, store.snapshot() as reader:
                final = balance_hours.final_before(watermarks.read(reader, app), now_ms)
                for start, end in _stretches(unknown):
                    for hour in balance_hours.read_hours(reader, app, start, end, _CELLS):
                        fresh_ms = HOUR_MS if hour.number < final else limits.BALANCE_RECENT_MS
                        known[hour.number] = hour
                        entry = _Entry(store, hour, now_ms + fresh_ms)
                        self._entries.put((app, hour.number), entry, entry.weight)
        return [hour for _, hour in sorted(known.items()) if hour is not None]

    def _fresh(self, store: Backend, app: int, number: int, now_ms: int) -> HourBalance | None:
        entry = self._entries.get((app, number))
        if entry is None or entry.store is not store or not now_ms < entry.until_ms <= now_ms + HOUR_MS:
            return None
        return entry.hour


def _stretches(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield (first, last) of each run of neighbours among ascending numbers."""
    start = 0
    for i in range(1, len(numbers) + 1):
        if i == len(numbers) or numbers[i] != numbers[i - 1] + 1:
            yield numbers[start], numbers[i - 1]
            start = i


_HOURS = _HourCache()
_CELLS = CommitCellCache()
