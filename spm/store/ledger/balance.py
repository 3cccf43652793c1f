"""The balance of an app: how many samples were accepted, and where they are now. It adds up at any time (invariant 3).

    accepted = stored + late + rejected + dead + queued + in flight + unconfirmed

Enter by ``read_balance``. Each accepting process announces how much it accepted up to a stamp, and how much of that is
not confirmed yet. Its watermark holds the sums up to which everything is settled; what is settled above it is counted
from commit records and ledger rows. Accepted samples that are not settled are in the queue if their process saw them
confirmed, else in flight, or unconfirmed when that process is gone. A difference is never hidden in other numbers: it
is ``missing``, with a discrepancy that names its process. Cost: the rows since the oldest watermark that lags, at most
those of ``BALANCE_LOOK_BACK_MS``; for a process that is gone for long, adoption records count what came. The balance
has no samples that were stored before processes announced.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import reduce
from typing import Self

import numpy as np

from spm import limits
from spm.store import keys
from spm.store.backends.base import Reader
from spm.store.ledger import watermarks
from spm.store.ledger.commit_columns import CommitCellCache
from spm.store.ledger.outcomes import Outcomes, read_outcomes
from spm.store.ledger.watermarks import Announcement, OutcomeTotals, ProcessWatermarks

MINUTE_MS = 60_000
_NO_ANNOUNCEMENT = Announcement(0, 0, 0, 0, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class SampleCounts:
    """Messages or samples by where they are. Rejected samples are lines that could not be read."""

    accepted: int = 0
    stored: int = 0
    late: int = 0
    rejected: int = 0
    dead: int = 0
    queued: int = 0
    in_flight: int = 0
    unconfirmed: int = 0

    def __add__(self, other: Self) -> Self:
        return type(self)(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def __sub__(self, other: Self) -> Self:
        return type(self)(*(getattr(self, f.name) - getattr(other, f.name) for f in fields(self)))

    @property
    def settled(self) -> int:
        """All with an outcome."""
        return self.stored + self.late + self.rejected + self.dead

    @property
    def not_stored(self) -> int:
        """All with an outcome that no answer will ever show."""
        return self.late + self.rejected + self.dead

    @property
    def waiting(self) -> int:
        """All without an outcome yet."""
        return self.queued + self.in_flight + self.unconfirmed

    @property
    def missing(self) -> int:
        """The difference that does not add up; below zero: more was settled than accepted."""
        return self.accepted - self.settled - self.waiting


@dataclass(frozen=True, slots=True)
class ProcessBalance:
    """One accepting process' part of the balance. Times are of stamps; 0: none yet."""

    number: int
    gone: bool
    last_ms: int
    watermark_ms: int
    messages: SampleCounts
    samples: SampleCounts


@dataclass(frozen=True, slots=True)
class Discrepancy:
    """By how much the balance of a process does not add up."""

    process: int
    messages: int
    samples: int


@dataclass(frozen=True, slots=True)
class Balance:
    """The balance of one app at one moment."""

    app: int
    at_ms: int
    messages: SampleCounts
    samples: SampleCounts
    lag_ms: int  # of the watermarks of living processes
    processes: tuple[ProcessBalance, ...]
    damaged: int = 0  # rows that could not be read: their samples count as waiting
    unread: tuple[int, ...] = ()  # processes whose own rows could not be read: they are in none of the numbers

    @property
    def ahead_ms(self) -> int:
        """By how much the newest stamp lies after now, because a clock was ahead; 0 where that is little."""
        ahead_ms = max((process.last_ms for process in self.processes), default=0) - self.at_ms
        return ahead_ms if ahead_ms > limits.STAMP_AHEAD_MS else 0

    @property
    def discrepancies(self) -> tuple[Discrepancy, ...]:
        """The processes whose balance does not add up."""
        parts = (Discrepancy(p.number, p.messages.missing, p.samples.missing) for p in self.processes)
        return tuple(part for part in parts if part.messages or part.samples)

    @property
    def adds_up(self) -> bool:
        """Whether all of it could be read, and nothing is missing."""
        return not (self.discrepancies or self.damaged or self.unread)


def read_balance(reader: Reader, app: int, now_ms: int, *, cells: CommitCellCache | None = None) -> Balance:
    """Compute the present balance. Watermarks are read first, so that later outcomes are counted from rows."""
    all_processes = watermarks.read(reader, app)
    readable = {number: process for number, process in all_processes.items() if not process.damaged}
    counted = {number: process for number, process in readable.items() if not _is_forgotten(process, now_ms)}
    above = {
        number: watermarks.pack_place(process.watermark.place) if number in counted else keys.U64
        for number, process in all_processes.items()
    }
    outcomes = read_outcomes(reader, app, _since_ms(counted.values(), now_ms) // MINUTE_MS, beyond=above, cells=cells)
    balances = [
        _process_balance(process, outcomes, now_ms) if number in counted else _ended_balance(process)
        for number, process in sorted(readable.items())
    ]
    return Balance(
        app,
        now_ms,
        sum((p.messages for p in balances), SampleCounts()),
        sum((p.samples for p in balances), SampleCounts()),
        watermarks.lag_ms(readable, now_ms),
        tuple(balances),
        outcomes.damaged,
        tuple(sorted(all_processes.keys() - readable.keys())),
    )


@dataclass(frozen=True, slots=True)
class BalanceSummary:
    """The balance by watermarks alone, for many apps at once: everything above a watermark counts as queued."""

    messages: SampleCounts
    samples: SampleCounts
    lag_ms: int
    unread: int = 0  # processes whose rows could not be read


def summarize(reader: Reader, app: int, now_ms: int) -> BalanceSummary:
    """Compute the summary by one scan of a few rows. It adds up; what was just settled may still count as queued."""
    all_processes = watermarks.read(reader, app)
    readable = {number: process for number, process in all_processes.items() if not process.damaged}
    totals = reduce(OutcomeTotals.plus, map(_settled_totals, readable.values()), OutcomeTotals())
    newest = [process.newest for process in readable.values() if process.newest is not None]
    messages = _with_queued(_messages(totals), sum(a.messages for a in newest))
    samples = _with_queued(_samples(totals), sum(a.samples + a.rejected for a in newest))
    return BalanceSummary(messages, samples, watermarks.lag_ms(readable, now_ms), len(all_processes) - len(readable))


def _with_queued(settled: SampleCounts, accepted: int) -> SampleCounts:
    return replace(settled, accepted=accepted, queued=accepted - settled.settled)


def _settled_totals(process: ProcessWatermarks) -> OutcomeTotals:
    return reduce(OutcomeTotals.plus, (record.totals for record in process.adoptions), process.watermark.totals)


def _since_ms(processes: Iterable[ProcessWatermarks], now_ms: int) -> int:
    """From when on rows may lie above a watermark: the oldest one with announcements above it, within a bound."""
    oldest = min((_settled_ms(process) for process in processes if not process.settled), default=now_ms)
    return max(0, oldest - limits.BALANCE_SLACK_MS, now_ms - limits.BALANCE_LOOK_BACK_MS)


def _settled_ms(process: ProcessWatermarks) -> int:
    """The time of the watermark; before the first one, that of the oldest announcement."""
    return process.watermark.ms or process.announcements[0].ms


def _is_forgotten(process: ProcessWatermarks, now_ms: int) -> bool:
    """Whether a process is gone for so long that its rows are not read: adoption records count what came."""
    return not process.settled and process.gone(now_ms) and _settled_ms(process) < now_ms - limits.BALANCE_GONE_MS


def _process_balance(process: ProcessWatermarks, outcomes: Outcomes, now_ms: int) -> ProcessBalance:
    """The balance of one process, from its watermark, its adoption records and the rows above the watermark.

    1. Stamps after its newest announcement count as accepted when a row or a record has them.
    2. Of the announced messages, watermark and records count one part, rows another; the remaining ones wait.
    """
    newest = process.newest or _NO_ANNOUNCEMENT
    announced = outcomes.stamps <= np.uint64(watermarks.pack_place(newest.place))
    mine = outcomes.are_settled & (outcomes.process == process.process)
    recorded = np.isin(outcomes.stamps, process.adopted_stamps)
    unannounced = outcomes.select(mine & ~announced & recorded).totals()
    if unannounced.messages != _count_unannounced(process):
        return _ended_balance(process)  # a record is older than the rows that were read
    settled = _settled_totals(process)
    from_rows = outcomes.select(mine & announced & ~recorded).totals()
    newer = outcomes.select(mine & ~announced).totals()
    messages = _messages(settled) - _messages(unannounced) + _messages(from_rows)
    samples = _samples(settled) - _samples(unannounced) + _samples(from_rows)
    wait_messages = max(0, newest.messages - messages.settled)
    wait_samples = max(0, newest.samples + newest.rejected - samples.settled) if wait_messages else 0
    open_messages = min(newest.open_messages, wait_messages)
    open_samples = wait_samples if open_messages == wait_messages else min(newest.open_samples, wait_samples)
    gone = process.gone(now_ms)
    return ProcessBalance(
        process.process,
        gone,
        newest.ms,
        process.watermark.ms,
        _with_waiting(messages, newest.messages, wait_messages, open_messages, gone=gone) + _messages(newer),
        _with_waiting(samples, newest.samples + newest.rejected, wait_samples, open_samples, gone=gone)
        + _samples(newer),
    )


def _ended_balance(process: ProcessWatermarks) -> ProcessBalance:
    """The balance of a process that is gone for long, by its watermark and adoption records; the rest never came."""
    newest, settled = process.newest or _NO_ANNOUNCEMENT, _settled_totals(process)
    messages = max(0, newest.messages + _count_unannounced(process) - settled.messages)
    samples = max(0, newest.samples + newest.rejected - _samples(settled).settled) if messages else 0
    return ProcessBalance(
        process.process,
        True,
        newest.ms,
        process.watermark.ms,
        _with_waiting(_messages(settled), settled.messages + messages, messages, messages, gone=True),
        _with_waiting(_samples(settled), _samples(settled).settled + samples, samples, samples, gone=True),
    )


def _count_unannounced(process: ProcessWatermarks) -> int:
    """The number of stamps that its records name and that it never announced."""
    newest = process.newest or _NO_ANNOUNCEMENT
    return int((process.adopted_stamps > np.uint64(watermarks.pack_place(newest.place))).sum())


def _with_waiting(settled: SampleCounts, accepted: int, waiting: int, open_: int, *, gone: bool) -> SampleCounts:
    """Add the samples that wait: confirmed by the queue or open, and open ones of a living process or of one gone."""
    in_flight, unconfirmed = (0, open_) if gone else (open_, 0)
    return replace(settled, accepted=accepted, queued=waiting - open_, in_flight=in_flight, unconfirmed=unconfirmed)


def _messages(totals: OutcomeTotals) -> SampleCounts:
    return SampleCounts(
        totals.messages, totals.stored_messages, totals.late_messages, totals.rejected_messages, totals.dead_messages
    )


def _samples(totals: OutcomeTotals) -> SampleCounts:
    return SampleCounts(
        totals.stored + totals.late + totals.rejected + totals.dead,
        totals.stored,
        totals.late,
        totals.rejected,
        totals.dead,
    )
