"""The balance by hours: the outcomes of each source's messages in each hour, and which messages are missing.

Enter by ``read_hours`` for the sums and by ``find_gaps`` for gaps in a source's own numbering. A message belongs to the
hour of its stamp. Rows are read for some hours at a time, so that memory does not grow with the range, and each time
from a little before the first hour, since a row is keyed by the oldest message of its batch. Sums of hours below every
watermark are final and may be cached. Messages that are not settled are in no hour, only in the present balance. Of
hours of long ago the rows are folded to their sums (``folding``); what these do not count is added from rows.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from spm import limits, message_ids
from spm.arrays import I32, I64, U64
from spm.errors import CorruptBlock
from spm.limits import HOUR_MS
from spm.store.backends.base import Reader
from spm.store.ledger import folded_hours
from spm.store.ledger.balance import MINUTE_MS
from spm.store.ledger.commit_columns import CommitCellCache
from spm.store.ledger.folded_hours import FoldedHour
from spm.store.ledger.outcomes import Outcomes, read_outcomes
from spm.store.ledger.watermarks import ProcessWatermarks

_LOG = logging.getLogger(__name__)
_PLAIN = np.dtype(">u8")


@dataclass(frozen=True, slots=True)
class NumberRun:
    """Consecutive message numbers of one spool, ``first`` to ``last``, stamped from ``first_ms`` to ``last_ms``."""

    source: str
    spool: int
    first: int
    last: int
    first_ms: int
    last_ms: int


@dataclass(frozen=True, slots=True)
class HourBalance:
    """One hour: sums per source (i64, one entry per source), and the runs of numbers in it."""

    number: int
    sources: tuple[str, ...]
    messages: I64
    stored: I64
    late: I64
    rejected: I64
    dead: I64
    runs: tuple[NumberRun, ...] = ()
    damaged: int = 0  # rows that could not be read, among those read together with this hour
    runs_cut: bool = False  # there were more than ``BALANCE_RUNS_MAX``: gaps of this hour are not reported

    @property
    def start_ms(self) -> int:
        return self.number * HOUR_MS


@dataclass(frozen=True, slots=True)
class NumberGap:
    """Messages of a source that never came: their numbers, and the stamps between which they were expected."""

    source: str
    spool: str
    first: int
    last: int
    after_ms: int
    before_ms: int

    @property
    def count(self) -> int:
        return self.last - self.first + 1


def read_hours(
    reader: Reader, app: int, first: int, last: int, cells: CommitCellCache | None = None
) -> Iterator[HourBalance]:
    """Sum the hours from number ``first`` to ``last``, both included, oldest first; one without messages is empty."""
    for begin in range(first, last + 1, limits.BALANCE_STRETCH_HOURS):
        end = min(last + 1, begin + limits.BALANCE_STRETCH_HOURS)
        outcomes = read_outcomes(reader, app, *minutes_of(begin, end), cells=cells)
        folded_ones = folded_hours.read(reader, app, range(begin, end))
        number = outcomes.ms // HOUR_MS
        for hour in range(begin, end):
            rows, folded = np.flatnonzero(number == hour), folded_ones.get(hour)
            if folded is None:
                yield hour_balance(outcomes, hour, rows)
            elif isinstance(folded, CorruptBlock):
                _LOG.error("the sums of an hour are damaged: %s", folded)
                balance = hour_balance(outcomes, hour, rows)
                yield replace(balance, damaged=balance.damaged + 1)
            else:
                rows = rows[~folded.counts(outcomes.process[rows], outcomes.stamps[rows])]
                yield _sum_of_both(_unfolded(folded, hour), hour_balance(outcomes, hour, rows))


def minutes_of(first: int, end: int) -> tuple[int, int]:
    """The first and the last minute of the ledger rows of the messages in some hours; ``end``: the hour after them."""
    since_ms = first * HOUR_MS - limits.BALANCE_SLACK_MS
    return max(0, since_ms // MINUTE_MS), (end * HOUR_MS - 1) // MINUTE_MS


def _unfolded(folded: FoldedHour, number: int) -> HourBalance:
    columns = (folded.messages, folded.stored, folded.late, folded.rejected, folded.dead)
    runs = tuple(NumberRun(folded.sources[source], *rest) for source, *rest in folded.runs)
    messages, stored, late, rejected, dead = (np.array(column, np.int64) for column in columns)
    return HourBalance(number, folded.sources, messages, stored, late, rejected, dead, runs, runs_cut=folded.runs_cut)


def _sum_of_both(one: HourBalance, other: HourBalance) -> HourBalance:
    """Add two balances of one hour, whose messages differ."""
    if not len(other.sources) and not other.runs:
        return replace(one, damaged=one.damaged + other.damaged)
    names, source = np.unique(np.array([*one.sources, *other.sources], object), return_inverse=True)
    messages, stored, late, rejected, dead = (
        _sum_by_group(np.concatenate([getattr(one, name), getattr(other, name)]), source, len(names))
        for name in ("messages", "stored", "late", "rejected", "dead")
    )
    runs, cut = _joined_runs([*one.runs, *other.runs]), one.runs_cut or other.runs_cut
    damaged, runs = one.damaged + other.damaged, () if cut else runs
    return HourBalance(one.number, tuple(names.tolist()), messages, stored, late, rejected, dead, runs, damaged, cut)


def final_before(watermarks: Mapping[int, ProcessWatermarks], now_ms: int) -> int:
    """The number of the first hour that may still change: all hours before it lie below every watermark."""
    open_ms = [p.watermark.ms or p.announcements[0].ms for p in watermarks.values() if not p.settled]
    return min([now_ms - limits.BALANCE_SLACK_MS, *open_ms]) // HOUR_MS


def _joined_runs(runs: Iterable[NumberRun]) -> tuple[NumberRun, ...]:
    """Join runs of a spool that overlap or follow each other: each number counts once."""
    joined: list[NumberRun] = []
    for run in sorted(runs, key=lambda run: (run.spool, run.first)):
        before = joined[-1] if joined else None
        if before is None or before.spool != run.spool or run.first > before.last + 1:
            joined.append(run)
            continue
        last, first_ms = max(before.last, run.last), min(before.first_ms, run.first_ms)
        joined[-1] = replace(before, last=last, first_ms=first_ms, last_ms=max(before.last_ms, run.last_ms))
    return tuple(joined)


def hour_balance(outcomes: Outcomes, number: int, rows: I64) -> HourBalance:
    """Sum the settled ones of these messages of an hour."""
    settled = rows[outcomes.are_settled[rows]]
    used, source = np.unique(outcomes.source[settled], return_inverse=True)
    ones = np.ones(len(outcomes), np.int64)
    counts, stored, late, rejected, dead = (
        _sum_by_group(column[settled], source, len(used))
        for column in (ones, outcomes.stored, outcomes.late, outcomes.rejected, outcomes.dead)
    )
    runs = tuple(_number_runs(outcomes, rows))
    cut = len(runs) > limits.BALANCE_RUNS_MAX
    names = tuple(outcomes.sources[i] for i in used.tolist())
    return HourBalance(number, names, counts, stored, late, rejected, dead, () if cut else runs, outcomes.damaged, cut)


def _sum_by_group(values: I64, group: npt.NDArray[np.intp], groups: int) -> I64:
    out = np.zeros(groups, np.int64)
    np.add.at(out, group, values)
    return out


def _number_runs(outcomes: Outcomes, rows: I64) -> Iterator[NumberRun]:
    """Find the runs among the messages whose ids are numbers of a spool, of any outcome."""
    ids = outcomes.message_ids[rows]
    numbered = (ids[:, :4] == np.frombuffer(message_ids.PREFIX, np.uint8)).all(axis=1)
    ids, rows = ids[numbered], rows[numbered]
    if not len(ids):
        return
    spool, number = _u48(ids[:, 4:10]), _u48(ids[:, 10:16])
    order = np.lexsort((number, spool))
    spool, number, rows = spool[order], number[order], rows[order]
    broken = (spool[1:] != spool[:-1]) | (number[1:] - number[:-1] > 1)
    starts = np.concatenate([[0], np.flatnonzero(broken) + 1])
    ends = np.concatenate([starts[1:], [len(number)]]) - 1
    ms = outcomes.ms[rows]
    low, high = np.minimum.reduceat(ms, starts), np.maximum.reduceat(ms, starts)
    sources: I32 = outcomes.source[rows[starts]]
    columns = (sources, spool[starts], number[starts], number[ends], low, high)
    for source, *numbers in zip(*(column.tolist() for column in columns), strict=True):
        yield NumberRun(outcomes.sources[source], *numbers)


def _u48(raw: npt.NDArray[np.uint8]) -> U64:
    padded = np.zeros((len(raw), 8), np.uint8)
    padded[:, 2:] = raw
    return padded.view(_PLAIN).ravel().astype(np.uint64)


def find_gaps(hours: Iterable[HourBalance]) -> Iterator[NumberGap]:
    """Find the numbers missing between the lowest and the highest one of each spool, by spool and number."""
    runs = sorted((run for hour in hours for run in hour.runs), key=lambda run: (run.spool, run.first))
    before: NumberRun | None = None
    for run in runs:
        if before is not None and before.spool == run.spool:
            if run.first > before.last + 1:
                yield NumberGap(
                    run.source, f"{run.spool:012x}", before.last + 1, run.first - 1, before.last_ms, run.first_ms
                )
            if run.last <= before.last:
                continue
        before = run
