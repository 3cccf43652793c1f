"""Folded hours: the sums of an hour's settled messages by source, in place of ledger rows (PROTOCOL 24).

Such a row says which messages it counts: of each process those up to a stamp, below which everything is settled for
good. Ledger rows of other messages of the hour count beside it, so that nothing is counted twice or left out, whichever
of its rows are deleted already. It also names the batches that runs had compacted, of which the ledger's rows were the
only proof. It is put once and never changed. Enter by ``read`` and ``are_compacted``; ``folding`` writes.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise

import msgspec
import numpy as np

from spm.arrays import BOOL, I64, U64
from spm.errors import CorruptBlock
from spm.limits import HOUR_MS
from spm.store import keys
from spm.store.backends.base import Reader
from spm.store.encoding import blocks
from spm.store.keys import LogKey

COLUMN = b"h"


class FoldedHour(msgspec.Struct, frozen=True, array_like=True):
    """The sums of an hour, one number per source, and the runs of numbers in it.

    ``processes``, ascending, and ``places``: the packed stamp of each up to which its messages are counted here.
    ``batches``: of those whose oldest message is of this hour the least number, then each one's distance to the next.
    """

    sources: tuple[str, ...]
    messages: tuple[int, ...]
    stored: tuple[int, ...]
    late: tuple[int, ...]
    rejected: tuple[int, ...]
    dead: tuple[int, ...]
    runs: tuple[tuple[int, int, int, int, int, int], ...]  # source's number, spool, first, last, first ms, last ms
    processes: tuple[int, ...]
    places: tuple[int, ...]
    batches: tuple[int, ...] = ()
    runs_cut: bool = False

    def to_bytes(self) -> bytes:
        """The framed record."""
        return blocks.encode_record(blocks.FOLDED, self)

    def batch_numbers(self) -> frozenset[int]:
        """The batches that runs had compacted as a whole, all in time."""
        return frozenset(accumulate(self.batches))

    def counts(self, process: I64, stamps: U64) -> BOOL:
        """bool[M]: the messages (process, packed stamp) that are among its sums."""
        return are_up_to(np.array(self.processes, np.int64), np.array(self.places, np.uint64), process, stamps)


def steps_of(batches: Iterable[int]) -> tuple[int, ...]:
    """Numbers of batches as a folded hour holds them: a writer counts on, so that most steps are equal."""
    numbers = sorted(batches)
    return tuple(number - before for before, number in pairwise([0, *numbers]))


def are_up_to(processes: I64, places: U64, process: I64, stamps: U64) -> BOOL:
    """bool[M]: the messages whose stamp is not above the place of their process; ``processes`` ascend."""
    if not len(processes):
        return np.zeros(len(process), np.bool_)
    number = np.minimum(np.searchsorted(processes, process), len(processes) - 1)
    mask: BOOL = (processes[number] == process) & (stamps <= places[number])
    return mask


def decode(raw: bytes) -> FoldedHour:
    """Decode a record; raise ``CorruptBlock``."""
    hour = blocks.decode_record(blocks.FOLDED, raw, FoldedHour)
    columns = (hour.messages, hour.stored, hour.late, hour.rejected, hour.dead)
    if {len(column) for column in columns} != {len(hour.sources)} or len(hour.processes) != len(hour.places):
        raise CorruptBlock("the columns of a folded hour differ in length", wanted=len(hour.sources))
    if any(not 0 <= run[0] < len(hour.sources) for run in hour.runs):
        raise CorruptBlock("a run of a folded hour has no source", wanted=f"one of {len(hour.sources)}")
    return hour


def key(app: int, hour: int) -> bytes:
    """The key of an hour's row: that of its first minute."""
    return keys.ledger(app, hour * 60, 0, 0)


def read(reader: Reader, app: int, hours: Iterable[int]) -> dict[int, FoldedHour | CorruptBlock]:
    """Read the folded ones among these hours, each or its error.

    Read them after the ledger rows: a row is deleted only once its hour is folded.
    """
    numbers = list(hours)
    rows = reader.get("ledger", [key(app, hour) for hour in numbers], [COLUMN])
    return {hour: _decoded(row[COLUMN]) for hour, row in zip(numbers, rows, strict=True) if row and COLUMN in row}


def are_compacted(reader: Reader, app: int, blocks_asked: Sequence[LogKey]) -> list[bool]:
    """Whether each of these blocks is of a batch that a folded hour names: its ledger row may be deleted."""
    hours = [block.ingest_ms // HOUR_MS for block in blocks_asked]
    folded_ones = read(reader, app, sorted(set(hours)))
    named = {hour: folded.batch_numbers() for hour, folded in folded_ones.items() if isinstance(folded, FoldedHour)}
    return [block.batch in named.get(hour, ()) for block, hour in zip(blocks_asked, hours, strict=True)]


def _decoded(raw: bytes) -> FoldedHour | CorruptBlock:
    try:
        return decode(raw)
    except CorruptBlock as error:
        return error
