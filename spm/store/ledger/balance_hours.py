"""The balance by hours: the outcomes of each source's messages in each hour, and which messages are missing.

Enter by ``read_hours`` for the sums and by ``find_gaps`` for gaps in a source's own numbering. A message belongs to the
hour of its stamp. Rows are read for some hours at a time, so that memory does not grow with the range, and each time
from a little before the first hour, since a row is keyed by the oldest message of its batch. Sums of hours below every
watermark are final and may be cached. Messages that are not settled are in no hour, only in the present balance.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spm import limits, message_ids
from spm.arrays import I32, I64, U64
from spm.limits import HOUR_MS
from spm.store.backends.base import Reader
from spm.store.ledger.balance import MINUTE_MS
from spm.store.ledger.commit_columns import CommitCellCache
from spm.store.ledger.outcomes import Outcomes, read_outcomes
from spm.store.ledger.watermarks import ProcessWatermarks

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
        since, until = (begin * HOUR_MS - limits.BALANCE_SLACK_MS) // MINUTE_MS, (end * HOUR_MS - 1) // MINUTE_MS
        outcomes = read_outcomes(reader, app, max(0, since), until, cells=cells)
        number = outcomes.ms // HOUR_MS
        for hour in range(begin, end):
            yield _hour_balance(outcomes, hour, np.flatnonzero(number == hour))


def final_before(watermarks: Mapping[int, ProcessWatermarks], now_ms: int) -> int:
    """The number of the first hour that may still change: all hours before it lie below every watermark."""
    open_ms = [p.watermark.ms or p.announcements[0].ms for p in watermarks.values() if not p.settled]
    return min([now_ms - limits.BALANCE_SLACK_MS, *open_ms]) // HOUR_MS


def _hour_balance(outcomes: Outcomes, number: int, rows: I64) -> HourBalance:
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
