"""The account of some hours: what was settled of each source's messages in each of them, and which are not there.

Enter by ``read_hours`` for the sums, ``gaps`` for what is missing in a source's own numbering. An hour is that of a
message's stamp. Rows are read some hours at a time, so that memory does not grow with the span, and each stretch from a
little before its begin, since a row is keyed by the oldest message of its batch. Sums of hours below every mark are
final; whoever asks may keep them. Messages that are not settled are in no hour: they stand in the account of now.
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
    """Numbers of one spool without a gap, as they were seen: from ``first`` to ``last``, stamped between two times."""

    source: str
    spool: int
    first: int
    last: int
    first_ms: int
    last_ms: int


@dataclass(frozen=True, slots=True)
class HourBalance:
    """One hour: sums per source (i64 each, one entry per source), and the runs of numbers seen in it."""

    number: int
    sources: tuple[str, ...]
    messages: I64
    stored: I64
    late: I64
    rejected: I64
    dead: I64
    runs: tuple[NumberRun, ...] = ()
    damaged: int = 0  # rows among those of its stretch that could not be read
    runs_cut: bool = False  # there were more than ``ACCOUNT_RUNS_MAX``: gaps of this hour are not told

    @property
    def start_ms(self) -> int:
        """When it began."""
        return self.number * HOUR_MS


@dataclass(frozen=True, slots=True)
class NumberGap:
    """Messages of a source that never came: their numbers, and between which two stamps they were expected."""

    source: str
    spool: str
    first: int
    last: int
    after_ms: int
    before_ms: int

    @property
    def count(self) -> int:
        """How many messages."""
        return self.last - self.first + 1


def read_hours(
    reader: Reader, app: int, first: int, last: int, cells: CommitCellCache | None = None
) -> Iterator[HourBalance]:
    """The hours from number ``first`` to ``last``, both included, oldest first; one without a message is empty."""
    for begin in range(first, last + 1, limits.ACCOUNT_STRETCH_HOURS):
        end = min(last + 1, begin + limits.ACCOUNT_STRETCH_HOURS)
        since, until = (begin * HOUR_MS - limits.ACCOUNT_SLACK_MS) // MINUTE_MS, (end * HOUR_MS - 1) // MINUTE_MS
        found = read_outcomes(reader, app, max(0, since), until, cells=cells)
        number = found.ms // HOUR_MS
        for hour in range(begin, end):
            yield _hour(found, hour, np.flatnonzero(number == hour))


def final_before(known: Mapping[int, ProcessWatermarks], now_ms: int) -> int:
    """The number of the first hour that may still change: all before it lie below every mark."""
    behind = [m.held.ms or m.words[0].ms for m in known.values() if not m.settled]
    return min([now_ms - limits.ACCOUNT_SLACK_MS, *behind]) // HOUR_MS


def _hour(found: Outcomes, number: int, rows: I64) -> HourBalance:
    whole = rows[found.whole[rows]]
    used, source = np.unique(found.source[whole], return_inverse=True)
    ones = np.ones(len(found), np.int64)
    counts, stored, late, rejected, dead = (
        _summed(column[whole], source, len(used))
        for column in (ones, found.stored, found.late, found.rejected, found.dead)
    )
    runs = list(_runs(found, rows))
    kept = runs if len(runs) <= limits.ACCOUNT_RUNS_MAX else []
    names = tuple(found.sources[i] for i in used.tolist())
    cut = len(kept) < len(runs)
    return HourBalance(number, names, counts, stored, late, rejected, dead, tuple(kept), found.damaged, cut)


def _summed(values: I64, group: npt.NDArray[np.intp], groups: int) -> I64:
    out = np.zeros(groups, np.int64)
    np.add.at(out, group, values)
    return out


def _runs(found: Outcomes, rows: I64) -> Iterator[NumberRun]:
    """Runs among the messages whose ids are numbers of a spool, whatever became of them."""
    ids = found.message_ids[rows]
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
    ms = found.ms[rows]
    low, high = np.minimum.reduceat(ms, starts), np.maximum.reduceat(ms, starts)
    sources: I32 = found.source[rows[starts]]
    columns = (sources, spool[starts], number[starts], number[ends], low, high)
    for source, *numbers in zip(*(column.tolist() for column in columns), strict=True):
        yield NumberRun(found.sources[source], *numbers)


def _u48(raw: npt.NDArray[np.uint8]) -> U64:
    padded = np.zeros((len(raw), 8), np.uint8)
    padded[:, 2:] = raw
    return padded.view(_PLAIN).ravel().astype(np.uint64)


def gaps(found: Iterable[HourBalance]) -> Iterator[NumberGap]:
    """What is missing between the lowest and the highest number of each spool, by spool and number."""
    runs = sorted((run for hour in found for run in hour.runs), key=lambda run: (run.spool, run.first))
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
