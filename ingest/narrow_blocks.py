"""Encodes the blocks and commit records of HourShards that hold a few samples of one message.

A message may touch tens of thousands of them, and nearly everything in their rows is equal: the message's stamp, the
batch, the series of a shard. Each such column is packed once. The bytes are those of ``LogBlock`` and ``Commit``.
"""

import struct

import msgspec
import numpy as np

from spm.arrays import F64, I32, I64, U64
from spm.envelope_batch import Envelopes
from spm.store.encoding import blocks, codec, kernels
from spm.store.encoding.blocks import Messages, pack_column
from spm.store.encoding.codec import Column
from spm.store.ledger import commit_records
from spm.store.ledger.commit_records import BatchRows

SAMPLES_MAX = 64  # of one HourShard: with more, its own columns are most of its cost

_RANGE = struct.Struct("<3q")
Columns = tuple[msgspec.Raw, ...]


class NarrowBlocks:
    """Packs the columns of one batch of an app. ``series`` and ``metrics``: what samples name by their ``owner``."""

    def __init__(
        self, envelopes: Envelopes, series: U64, metrics: U64, rows: BatchRows, epoch: int, batch: int
    ) -> None:
        self._envelopes, self._series, self._metrics = envelopes, series, metrics
        of_batch: dict[str, Column | codec.Encoded] = {
            "batch_hash": np.array([batch], np.uint64),
            **rows.columns(),
            "epoch": np.array([epoch], np.int64),
        }
        self._of_batch = tuple(pack_column(name, column) for name, column in of_batch.items())
        self._stamps: dict[int, tuple[list[str], Columns, msgspec.Raw]] = {}  # by message
        self._named: dict[bytes, Columns] = {}  # by the owners of samples
        self._sized: dict[int, tuple[msgspec.Raw, msgspec.Raw]] = {}  # by their number

    def encode(self, message: int, owner: I32, ts: I64, values: F64, oldest: int, newest: int) -> tuple[bytes, bytes]:
        """Return the cells of `log` and `pending` of samples of one message, by series and in order of arrival."""
        texts, stamp, message_id = self._stamps.get(message) or self._pack_stamp(message)
        zeros, count = self._sized.get(len(ts)) or self._pack_size(len(ts))
        owners = owner.tobytes()
        named = self._named.get(owners) or self._pack_names(owner, owners)
        samples = (pack_column("ts", ts), pack_column("values", values))
        block = blocks.join_columns(blocks.LOG, (*stamp, *named, zeros, *samples), texts)
        bounds = (codec.RAW, "<i8", 3, 0, _RANGE.pack(oldest, newest, commit_records.STORED))
        facts = (*stamp, count, message_id, pack_column("range", bounds), *self._of_batch)
        return block, blocks.join_columns(blocks.PENDING, facts, texts)

    def _pack_stamp(self, message: int) -> tuple[list[str], Columns, msgspec.Raw]:
        of = self._envelopes
        number = np.array([message])
        stamp = (of.ms[number], of.process[number], of.sequence[number], np.zeros(1, np.int32))
        columns = Messages(*stamp, (of.sources[int(of.source[message])],)).columns()
        message_id = of.message_ids[16 * message : 16 * message + 16]
        self._stamps[message] = packed = (
            [of.sources[int(of.source[message])]],
            tuple(pack_column(name, column) for name, column in columns.items()),
            pack_column("id_hash", message_id),
        )
        return packed

    def _pack_size(self, size: int) -> tuple[msgspec.Raw, msgspec.Raw]:
        zeros = pack_column("message", np.zeros(size, np.int32))
        self._sized[size] = packed = (zeros, pack_column("samples", np.array([size], np.int64)))
        return packed

    def _pack_names(self, owner: I32, owners: bytes) -> Columns:
        counts, _ = kernels.group_by_series(owner, len(self._series))
        used = np.flatnonzero(counts)
        first, index = kernels.distinct(self._metrics[used])
        columns: dict[str, Column] = {
            "series_hash": self._series[used],
            "metric_hash": self._metrics[used][first],
            "metric": index,
            "counts": counts[used],
        }
        self._named[owners] = packed = tuple(pack_column(name, column) for name, column in columns.items())
        return packed
