"""Encodes one app's part of a batch: a block for each HourShard, and their commit records in `pending`.

Enter by ``encode_part``. A part that touches very many HourShards mostly has a few samples of one message in each:
``NarrowBlocks`` encodes those, to equal bytes in a fraction of the time.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ingest.narrow_blocks import SAMPLES_MAX, NarrowBlocks
from spm.arrays import F64, I32, I64, U64
from spm.envelope_batch import Envelopes
from spm.store import keys
from spm.store.backends.base import Cells, RowPut
from spm.store.encoding import codec, kernels
from spm.store.encoding.blocks import LogBlock, Messages, log_column
from spm.store.keys import PlacementEpoch
from spm.store.ledger import commit_records
from spm.store.ledger.commit_records import BatchRows, Commit
from spm.wire import hour_of

WIDE = 64  # HourShards of a part from which on all its samples are sorted at once

Encoded = tuple[int, int, Cells, bytes]  # shard, hour, the cells of the block, the cell of its commit record


@dataclass(frozen=True, slots=True)
class SampleColumns:
    """All samples of one app's messages as columns: ``owner`` i32 into the sorted ``series``, ``message`` i32."""

    envelopes: Envelopes
    series: U64
    metrics: U64
    owner: I32
    message: I32
    ts: I64
    values: F64

    @classmethod
    def of(cls, envelopes: Envelopes) -> "SampleColumns":
        ids, metrics = envelopes.series.ids, envelopes.series.metrics
        first, index = kernels.distinct(ids)
        if len(first) < len(ids) and not np.array_equal(metrics[first][index], metrics):
            # one id under two metrics: they are two series
            _, first, rows = np.unique(np.stack([ids, metrics]), axis=1, return_index=True, return_inverse=True)
            index = rows.ravel().astype(np.int32)
        owner = index[envelopes.series_index]
        return cls(envelopes, ids[first], metrics[first], owner, envelopes.message, envelopes.ts, envelopes.values)


@dataclass(frozen=True, slots=True)
class AppPart:
    """The part of a batch that belongs to one app, and the epoch by which it was placed."""

    app: int
    epoch: PlacementEpoch
    columns: SampleColumns


def encode_part(part: AppPart, batch: int) -> tuple[list[RowPut], list[RowPut]]:
    """Return the rows of `log` and of `pending` of one part: one block per HourShard."""
    app, columns = part.app, part.columns
    ingest_ms = int(columns.envelopes.ms.min())
    log: list[RowPut] = []
    cells: dict[int, dict[bytes, bytes]] = {}
    for shard, hour, block, commit in _encoded(part, batch):
        log.append((keys.LogKey(shard, app, hour, ingest_ms, batch).to_bytes(), block))
        cells.setdefault(shard, {})[keys.hour_column(hour)] = commit
    return log, [(keys.PendingKey(b, app, ingest_ms, batch).to_bytes(), c) for b, c in cells.items()]


def _encoded(part: AppPart, batch: int) -> Iterator[Encoded]:
    """Yield what is written of each HourShard, in the order of hours and shards."""
    columns = part.columns
    hours, shards = hour_of(columns.ts), part.epoch.place(part.app, columns.metrics)
    if bool((hours == hours[0]).all()) and bool((shards == shards[0]).all()):
        place = int(shards[0]), int(hours[0])
        yield (*place, *_block(columns, None, BatchRows.of([place]), part.epoch.number, batch))
        return
    numbers = hours * 256 + shards[columns.owner]
    order = np.argsort(numbers, kind="stable")
    starts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
    places = [(number & 255, number >> 8) for number in numbers[order[starts]].tolist()]
    rows = BatchRows.of(places)
    if len(places) >= WIDE:
        yield from _wide(part, numbers, places, rows, batch)
        return
    for place, samples in zip(places, np.split(order, starts[1:]), strict=True):
        yield (*place, *_block(columns, samples, rows, part.epoch.number, batch))


def _wide(part: AppPart, numbers: I64, places: list[tuple[int, int]], rows: BatchRows, batch: int) -> Iterator[Encoded]:
    """As ``_encoded``, with all samples sorted once, by HourShard and series. ``numbers``: of their HourShards."""
    columns = part.columns
    narrow = NarrowBlocks(columns.envelopes, columns.series, columns.metrics, rows, part.epoch.number, batch)
    order = np.lexsort((columns.owner, numbers))
    starts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
    owner, ts, values = columns.owner[order], columns.ts[order], columns.values[order]
    message = columns.message[order]
    first, last = np.minimum.reduceat(message, starts).tolist(), np.maximum.reduceat(message, starts).tolist()
    oldest, newest = np.minimum.reduceat(ts, starts).tolist(), np.maximum.reduceat(ts, starts).tolist()
    cuts = [*starts.tolist(), len(order)]
    for i, place in enumerate(places):
        start, stop = cuts[i], cuts[i + 1]
        if first[i] == last[i] and stop - start <= SAMPLES_MAX:
            span = slice(start, stop)
            block, commit = narrow.encode(first[i], owner[span], ts[span], values[span], oldest[i], newest[i])
            yield (*place, {log_column(0): block}, commit)
        else:
            yield (*place, *_block(columns, np.sort(order[start:stop]), rows, part.epoch.number, batch))


def _block(
    columns: SampleColumns, rows: I64 | None, of_batch: BatchRows, epoch: int, batch: int
) -> tuple[Cells, bytes]:
    """Return the cells of the block of these samples (``None``: of all), in order of arrival, and its commit record.

    ``of_batch``: all HourShards of the batch.
    """
    owner, message, ts, values = columns.owner, columns.message, columns.ts, columns.values
    envelopes, samples = columns.envelopes, columns.envelopes.samples
    if rows is not None:
        owner, message, ts, values = owner[rows], message[rows], ts[rows], values[rows]
        samples = np.bincount(message, minlength=len(envelopes))
    counts, order = kernels.group_by_series(owner, len(columns.series))
    has_samples = counts > 0
    used: I64 | slice = slice(None)
    message = message[order]
    if not samples.all():  # else the messages keep their numbers
        used = np.flatnonzero(samples)
        number = np.empty(len(envelopes), np.int32)
        number[used] = np.arange(len(used), dtype=np.int32)
        message = number[message]
    table = messages_table(envelopes, used)
    columns_of_table = table.columns().items()
    table = replace(table, encoded={n: c if isinstance(c, tuple) else codec.encode(c) for n, c in columns_of_table})
    block = LogBlock(
        table,
        columns.series[has_samples],
        columns.metrics[has_samples],
        counts[has_samples],
        message,
        ts[order],
        values[order],
    )
    ids = envelopes.message_ids.reshape(-1, 16)[used].ravel()
    commit = Commit(table, samples[used], ids, int(ts.min()), int(ts.max()), of_batch, epoch=epoch)
    return block.to_cells(), commit_records.encode(commit, batch=batch)


def messages_table(envelopes: Envelopes, used: I64 | slice) -> Messages:
    """Return the table of these messages, with only the sources that they have."""
    of_used = envelopes.source[used].tolist()
    places = {number: place for place, number in enumerate(sorted(set(of_used)))}
    source = np.array([places[number] for number in of_used], np.int32)
    columns = (envelopes.ms[used], envelopes.process[used], envelopes.sequence[used])
    return Messages(*columns, source, tuple(envelopes.sources[number] for number in places))
