"""Commit records and ledger rows: their contents, and the key of a ledger row (PROTOCOL 6, 7, 15, 24).

A pending record has one cell per hour of its batch in its shard. The cell says which messages (stamp, id, source) are
in the block, how many samples of each, and the rows of the batch, so that a message counts as stored when all of them
are there. A ledger row keeps these facts for good, with the outcome. ``ABANDONED`` marks what a writer put by an epoch
that had been closed: it counts for nothing, and the writer puts it again where it belongs (PROTOCOL 22).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from spm.arrays import I64, U8
from spm.errors import CorruptBlock
from spm.store import keys
from spm.store.backends.base import Reader, scan_ranges
from spm.store.encoding import blocks, codec
from spm.store.encoding.blocks import Messages
from spm.store.encoding.codec import Column
from spm.store.keys import LogKey

COLUMN = b"v"
BATCH_ROWS_NAMED_MAX = 1_024  # rows of a batch that each of its cells names; of more it has their number alone
STORED, REJECTED, DEAD, EXPIRED_HOUR, ABANDONED = range(5)  # outcomes; EXPIRED_HOUR: too late, the hour was sealed


@dataclass(frozen=True, slots=True)
class BatchRows:
    """The (shard, hour) of every row of a batch; of a batch with very many rows only how many they are.

    They stay encoded, since every cell of the batch has them: a batch encodes them once, and decoded, those of all its
    cells would take gigabytes. So does a list with the names of very many rows in each cell: nothing asks for more than
    their number.
    """

    shards: codec.Encoded
    hours: codec.Encoded

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int]]) -> "BatchRows":
        """Encode the rows of a batch; zeros stand for more than ``BATCH_ROWS_NAMED_MAX``."""
        if len(rows) == 1:
            [(shard, hour)] = rows
            return cls(codec.encode_few(shard), codec.encode_few(hour))
        columns = np.array(rows, np.int64).reshape(-1, 2)
        if len(columns) > BATCH_ROWS_NAMED_MAX:
            columns = np.zeros_like(columns)
        return cls(codec.encode(columns[:, 0].copy()), codec.encode(columns[:, 1].copy()))

    def __len__(self) -> int:
        return self.shards[2]

    def names(self) -> tuple[tuple[int, int], ...]:
        """Return the (shard, hour) of every row, or zeros; raise ``CorruptBlock``."""
        shards, hours = codec.decode(self.shards).tolist(), codec.decode(self.hours).tolist()
        return tuple(zip(shards, hours, strict=True))

    def columns(self) -> dict[str, codec.Encoded]:
        """Return the columns of a commit record that hold them."""
        return {"bucket": self.shards, "slot": self.hours}


@dataclass(frozen=True, slots=True)
class Commit:
    """A batch's part of one HourShard: samples per message, the messages' ids, the time range, the batch's rows."""

    messages: Messages
    samples: I64
    message_ids: U8  # u8[16 × M]
    ts_min: int
    ts_max: int
    rows: BatchRows
    totals: I64 | None = None  # of rejected or dead samples: the number of all samples of each message
    epoch: int | None = None  # by which the batch was placed; None in rows of older programs

    @property
    def stamp_min_ms(self) -> int:
        """The oldest stamp in it, ms."""
        return int(self.messages.ms.min())

    @property
    def stamp_max_ms(self) -> int:
        """The newest stamp in it, ms."""
        return int(self.messages.ms.max())

    @property
    def sample_count(self) -> int:
        return int(self.samples.sum())


def encode(commit: Commit, kind: int = blocks.PENDING, outcome: int = STORED, batch: int = 0) -> bytes:
    """Encode a commit as a cell of `pending` or, with that kind, as a ledger row."""
    columns: dict[str, Column | codec.Encoded] = {
        **commit.messages.columns(),
        "samples": commit.samples,
        "id_hash": commit.message_ids,
        "range": codec.encode_few(commit.ts_min, commit.ts_max, outcome),
        "batch_hash": np.array([batch], np.uint64),
        **commit.rows.columns(),
    }
    if commit.totals is not None:
        columns["total"] = commit.totals
    if commit.epoch is not None:
        columns["epoch"] = codec.encode_few(commit.epoch)
    return blocks.encode_columns(kind, columns, list(commit.messages.sources))


def decode(raw: bytes, kind: int = blocks.PENDING) -> Commit:
    """Decode a commit; raise ``CorruptBlock``."""
    return decode_ledger_row(raw, kind)[0]


def decode_ledger_row(raw: bytes, kind: int = blocks.LEDGER) -> tuple[Commit, int, int]:
    """Decode a ledger row to (commit, outcome, batch); raise ``CorruptBlock``."""
    texts, packed = blocks.packed_columns(kind, raw)
    rows = BatchRows(packed.pop("bucket"), packed.pop("slot"))
    if len(rows) != rows.hours[2]:
        raise CorruptBlock("a commit record's rows differ in length", got=rows.hours[2], wanted=len(rows))
    c = {name: codec.decode(column) for name, column in packed.items()}
    messages = Messages.of(c, texts)
    totals = c.get("total")
    if any(len(x) != n for x, n in ((c["samples"], len(messages)), (c["id_hash"], 16 * len(messages)))) or (
        totals is not None and len(totals) != len(messages)
    ):
        raise CorruptBlock("a commit record's columns differ in length", got=len(c["samples"]), wanted=len(messages))
    low, high, outcome = map(int, c["range"])
    if "epoch" in c and len(c["epoch"]) != 1:
        raise CorruptBlock("a commit record with a wrong number of epochs", got=len(c["epoch"]), wanted=1)
    epoch = int(c["epoch"][0]) if "epoch" in c else None
    return (
        Commit(messages, c["samples"], c["id_hash"], low, high, rows, totals, epoch),
        outcome,
        int(c["batch_hash"][0]),
    )


def count_samples(raw: bytes) -> int:
    """Count the samples of a cell of `pending`, of which nothing else is decoded; raise ``CorruptBlock``."""
    _, packed = blocks.packed_columns(blocks.PENDING, raw)
    if "samples" not in packed:
        raise CorruptBlock("a commit record lacks a column", got=sorted(packed), wanted="samples")
    return int(codec.decode(packed["samples"]).sum())


def ledger_key(block: LogKey) -> bytes:
    """The key of the ledger row that any run writes for a block's pending cell."""
    sequence = (block.hour << 8 | block.shard) & keys.U32
    return keys.ledger(block.app, block.ingest_ms // 60_000, block.batch, sequence)


@dataclass(frozen=True, slots=True)
class PendingCell:
    """One cell of a pending record, with its key."""

    key: keys.PendingKey
    hour: int
    cell: bytes


def scan(reader: Reader, app: int, shards: list[int]) -> Iterator[PendingCell]:
    """Read all pending cells of an app in these shards, newest first within a shard."""
    for key, cells in scan_ranges(reader, "pending", [keys.app_range(shard, app) for shard in shards]):
        parsed = keys.PendingKey.parse(key)
        for column, cell in cells.items():
            yield PendingCell(parsed, keys.column_hour(column), cell)
