"""The account of an app: everything that was accepted, and where it is now. It adds up at any time (invariant 3).

    accepted = stored + late + rejected + dead + queued + in flight + unconfirmed

Enter by ``read_balance``. Each accepting process announces how much it accepted up to a stamp, and how much of that nobody
has confirmed yet; its low-water mark holds the sums up to which everything is settled; what was settled beyond the mark
is counted from commit records and account rows. What was accepted and is not settled waits: in the queue where its
process saw it confirmed, else in flight, or unconfirmed when that process is gone. A difference is never spread over
other numbers: it stands as ``missing``, with a finding that says which process it is about. Cost: the rows since the
oldest mark that lags, ``ACCOUNT_LOOK_BACK_MS`` at most; of a process that is gone for long, adoption records say what
came. What was stored before processes announced themselves is not in the account.
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
_NO_WORD = Announcement(0, 0, 0, 0, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class SampleCounts:
    """Where messages or samples are; among samples, rejected ones are lines that could not be read."""

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
        """What has come to its end."""
        return self.stored + self.late + self.rejected + self.dead

    @property
    def lost(self) -> int:
        """What no answer will ever show."""
        return self.late + self.rejected + self.dead

    @property
    def waiting(self) -> int:
        """Not settled yet."""
        return self.queued + self.in_flight + self.unconfirmed

    @property
    def missing(self) -> int:
        """What does not add up; below zero: more was settled than accepted."""
        return self.accepted - self.settled - self.waiting


@dataclass(frozen=True, slots=True)
class ProcessBalance:
    """One accepting process' part of the account. Times are of stamps; 0: none yet."""

    number: int
    gone: bool
    last_ms: int
    mark_ms: int
    messages: SampleCounts
    samples: SampleCounts


@dataclass(frozen=True, slots=True)
class Discrepancy:
    """A part of the account that does not add up: what process, and by how much."""

    process: int
    messages: int
    samples: int


@dataclass(frozen=True, slots=True)
class Balance:
    """The account of one app at one moment."""

    app: int
    at_ms: int
    messages: SampleCounts
    samples: SampleCounts
    lag_ms: int  # of the marks of living processes
    processes: tuple[ProcessBalance, ...]
    damaged: int = 0  # rows that could not be read: what they account for seems to wait
    unread: tuple[int, ...] = ()  # processes whose own rows could not be read: they are in none of the numbers

    @property
    def findings(self) -> tuple[Discrepancy, ...]:
        """Where it does not add up."""
        parts = (Discrepancy(p.number, p.messages.missing, p.samples.missing) for p in self.processes)
        return tuple(part for part in parts if part.messages or part.samples)

    @property
    def adds_up(self) -> bool:
        """Whether all of it could be read, and nothing is missing."""
        return not (self.findings or self.damaged or self.unread)


def read_balance(reader: Reader, app: int, now_ms: int, *, cells: CommitCellCache | None = None) -> Balance:
    """The account now. Marks are read first: what is settled after that was announced before, or is newer than that."""
    found_marks = watermarks.read(reader, app)
    known = {n: m for n, m in found_marks.items() if not m.damaged}
    counted = {n: m for n, m in known.items() if not _forgotten(m, now_ms)}
    above = {n: watermarks.packed(m.held.place) if n in counted else keys.U64 for n, m in found_marks.items()}
    found = read_outcomes(reader, app, _since_ms(counted.values(), now_ms) // MINUTE_MS, beyond=above, cells=cells)
    processes = [_process(m, found, now_ms) if n in counted else _past(m) for n, m in sorted(known.items())]
    return Balance(
        app,
        now_ms,
        sum((p.messages for p in processes), SampleCounts()),
        sum((p.samples for p in processes), SampleCounts()),
        watermarks.lag_ms(known, now_ms),
        tuple(processes),
        found.damaged,
        tuple(sorted(found_marks.keys() - known.keys())),
    )


@dataclass(frozen=True, slots=True)
class BalanceSummary:
    """The account as marks alone tell it, for many apps at once: whatever is not held by a mark counts as queued."""

    messages: SampleCounts
    samples: SampleCounts
    lag_ms: int
    unread: int = 0  # processes whose rows could not be read


def summarize(reader: Reader, app: int, now_ms: int) -> BalanceSummary:
    """One scan of a few rows. It adds up, too; what was settled a moment ago still waits here."""
    found = watermarks.read(reader, app)
    known = {n: m for n, m in found.items() if not m.damaged}
    held = reduce(OutcomeTotals.plus, map(_held, known.values()), OutcomeTotals())
    words = [m.announced for m in known.values() if m.announced is not None]
    told = sum(word.messages for word in words), sum(word.samples + word.rejected for word in words)
    messages, samples = (
        replace(settled, accepted=accepted, queued=accepted - settled.settled)
        for settled, accepted in zip((_messages(held), _samples(held)), told, strict=True)
    )
    return BalanceSummary(messages, samples, watermarks.lag_ms(known, now_ms), len(found) - len(known))


def _held(known: ProcessWatermarks) -> OutcomeTotals:
    return reduce(OutcomeTotals.plus, (record.totals for record in known.adopted), known.held.totals)


def _since_ms(known: Iterable[ProcessWatermarks], now_ms: int) -> int:
    """From where rows may lie that no mark counts: the oldest mark with announcements above it, within a bound."""
    oldest = min((_behind_ms(m) for m in known if not m.settled), default=now_ms)
    return max(0, oldest - limits.ACCOUNT_SLACK_MS, now_ms - limits.ACCOUNT_LOOK_BACK_MS)


def _behind_ms(known: ProcessWatermarks) -> int:
    """Up to where everything is settled; before the first mark: some moments before the oldest announcement."""
    return known.held.ms or known.words[0].ms


def _forgotten(known: ProcessWatermarks, now_ms: int) -> bool:
    """Whether a process is gone for so long that its rows are not looked for: adoption records say what came."""
    return not known.settled and known.gone(now_ms) and _behind_ms(known) < now_ms - limits.ACCOUNT_GONE_MS


def _process(known: ProcessWatermarks, found: Outcomes, now_ms: int) -> ProcessBalance:
    """One process: what its mark and records hold, what rows say above it, and what is left of what it announced.

    1. What it stamped after its last word counts as accepted when it is found, by rows or by a record.
    2. Of what it announced, marks and records count one part, rows the other; what is then left waits.
    """
    word = known.announced or _NO_WORD
    told = found.stamps <= np.uint64(watermarks.packed(word.place))
    mine = found.whole & (found.process == known.process)
    recorded = np.isin(found.stamps, known.named)
    unannounced = found.only(mine & ~told & recorded).totals()
    if unannounced.messages != _later(known):
        return _past(known)  # a record is older than the rows that were read
    held, more, newer = _held(known), found.only(mine & told & ~recorded).totals(), found.only(mine & ~told).totals()
    messages = _messages(held) - _messages(unannounced) + _messages(more)
    samples = _samples(held) - _samples(unannounced) + _samples(more)
    wait_messages = max(0, word.messages - messages.settled)
    wait_samples = max(0, word.samples + word.rejected - samples.settled) if wait_messages else 0
    open_messages = min(word.open_messages, wait_messages)
    open_samples = wait_samples if open_messages == wait_messages else min(word.open_samples, wait_samples)
    gone = known.gone(now_ms)
    return ProcessBalance(
        known.process,
        gone,
        word.ms,
        known.held.ms,
        _places(messages, word.messages, wait_messages, open_messages, gone=gone) + _messages(newer),
        _places(samples, word.samples + word.rejected, wait_samples, open_samples, gone=gone) + _samples(newer),
    )


def _past(known: ProcessWatermarks) -> ProcessBalance:
    """One that is gone for long: what its mark and its adoption records hold. What they lack never came."""
    word, held = known.announced or _NO_WORD, _held(known)
    messages = max(0, word.messages + _later(known) - held.messages)
    samples = max(0, word.samples + word.rejected - _samples(held).settled) if messages else 0
    return ProcessBalance(
        known.process,
        True,
        word.ms,
        known.held.ms,
        _places(_messages(held), held.messages + messages, messages, messages, gone=True),
        _places(_samples(held), _samples(held).settled + samples, samples, samples, gone=True),
    )


def _later(known: ProcessWatermarks) -> int:
    """How many stamps its records name that it never announced."""
    word = known.announced or _NO_WORD
    return int((known.named > np.uint64(watermarks.packed(word.place))).sum())


def _places(settled: SampleCounts, accepted: int, waiting: int, open_: int, *, gone: bool) -> SampleCounts:
    """With what waits beside what is settled: confirmed by the queue, or not; by a process that lives, or not."""
    in_flight, unconfirmed = (0, open_) if gone else (open_, 0)
    return replace(settled, accepted=accepted, queued=waiting - open_, in_flight=in_flight, unconfirmed=unconfirmed)


def _messages(of: OutcomeTotals) -> SampleCounts:
    """Outcomes messages, each by one outcome."""
    return SampleCounts(of.messages, of.stored_messages, of.late_messages, of.rejected_messages, of.dead_messages)


def _samples(of: OutcomeTotals) -> SampleCounts:
    """Outcomes samples."""
    return SampleCounts(of.stored + of.late + of.rejected + of.dead, of.stored, of.late, of.rejected, of.dead)
