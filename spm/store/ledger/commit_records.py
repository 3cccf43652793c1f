"""Commit records and account rows: what is written, of which message, and in which rows (rules 6, 7, 15 and 24).

A pending record has one cell per hour of its batch in its shard. The cell says which messages (stamp, id, source) are
in the block, how many samples of each, and all rows of the batch, so that a message counts as stored when all of them
are there. A ledger row holds the same facts for good, with the outcome. ``ABANDONED`` is what a writer left by an epoch
that had closed: nobody may count on it, and the writer puts the same where it belongs (rule 22).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from spm.arrays import I64, U8
from spm.errors import CorruptBlock
from spm.store import keys
from spm.store.backends.base import Reader
from spm.store.backends.ranges import scan_ranges
from spm.store.encoding import blocks
from spm.store.encoding.blocks import Messages
from spm.store.keys import LogKey

COLUMN = b"v"
STORED, REJECTED, DEAD, EXPIRED_HOUR, ABANDONED = range(5)  # outcomes of a stamp; late: its hour was sealed already


@dataclass(frozen=True, slots=True)
class Commit:
    """What one batch stored in one unit: samples per message, the messages' ids, the time range, the batch's rows."""

    messages: Messages
    samples: I64
    message_ids: U8  # u8[16 × M]
    ts_min: int
    ts_max: int
    rows: tuple[tuple[int, int], ...]  # (shard, hour) of every row of the batch
    totals: I64 | None = None  # of what is rejected or dead: samples of each message in all, however few are so
    epoch: int | None = None  # by which the batch was placed; older programs did not say

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
        """Samples in the block."""
        return int(self.samples.sum())


def encode(commit: Commit, kind: int = blocks.PENDING, outcome: int = STORED, batch: int = 0) -> bytes:
    """The cell (or, with its kind, the ledger row) of a commit."""
    rows = np.array(commit.rows, np.int64).reshape(-1, 2)
    columns = {
        **commit.messages.columns(),
        "samples": commit.samples,
        "id_hash": commit.message_ids,
        "range": np.array([commit.ts_min, commit.ts_max, outcome], np.int64),
        "batch_hash": np.array([batch], np.uint64),
        "bucket": rows[:, 0].copy(),
        "slot": rows[:, 1].copy(),
    }
    if commit.totals is not None:
        columns["total"] = commit.totals
    if commit.epoch is not None:
        columns["epoch"] = np.array([commit.epoch], np.int64)
    return blocks.encode_columns(kind, columns, list(commit.messages.sources))


def decode(raw: bytes, kind: int = blocks.PENDING) -> Commit:
    """The commit; raises ``CorruptBlock``."""
    return decode_ledger_row(raw, kind)[0]


def decode_ledger_row(raw: bytes, kind: int = blocks.LEDGER) -> tuple[Commit, int, int]:
    """(commit, outcome, batch) of a ledger row."""
    c, texts = blocks.decode_columns(kind, raw)
    messages = Messages.of(c, texts)
    totals = c.get("total")
    if any(len(x) != n for x, n in ((c["samples"], len(messages)), (c["id_hash"], 16 * len(messages)))) or (
        totals is not None and len(totals) != len(messages)
    ):
        raise CorruptBlock("a commit record's columns differ in length", got=len(c["samples"]), wanted=len(messages))
    low, high, outcome = map(int, c["range"])
    rows = tuple(zip(map(int, c["bucket"]), map(int, c["slot"]), strict=True))
    if "epoch" in c and len(c["epoch"]) != 1:
        raise CorruptBlock("a commit record was placed by one epoch", got=len(c["epoch"]), wanted=1)
    epoch = int(c["epoch"][0]) if "epoch" in c else None
    return (
        Commit(messages, c["samples"], c["id_hash"], low, high, rows, totals, epoch),
        outcome,
        int(c["batch_hash"][0]),
    )


def ledger_key(block: LogKey) -> bytes:
    """Where the account of a block's pending cell stands, once a run has taken it in; the same for every run."""
    sequence = (block.hour << 8 | block.shard) & keys.U32
    return keys.ledger(block.app, block.ingest_ms // 60_000, block.batch, sequence)


@dataclass(frozen=True, slots=True)
class PendingCell:
    """One pending cell as a scan finds it."""

    key: keys.PendingKey
    hour: int
    cell: bytes


def scan(reader: Reader, app: int, shards: list[int]) -> Iterator[PendingCell]:
    """All pending cells of an app in these shards, newest first within a shard."""
    for key, cells in scan_ranges(reader, "pending", [keys.app_range(shard, app) for shard in shards]):
        parsed = keys.PendingKey.parse(key)
        for column, cell in cells.items():
            yield PendingCell(parsed, keys.column_hour(column), cell)
