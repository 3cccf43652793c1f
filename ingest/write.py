"""The one way into the store: a batch of envelopes becomes blocks, commit records and account rows (rule 6).

Enter by ``Writer.write``. Order: series, log, pending, and only then may the caller acknowledge. A retry of the same
``Batch`` has the same id and the same bytes; whatever is written twice is merged by the reader. Used by the direct
transport and by the queue's workers alike; no Django, no Celery here.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spm import clock
from spm.store import blocks, kernels, keys, pending
from spm.store.backends.base import Backend, RowPut, Step
from spm.store.blocks import LogBlock, Messages
from spm.store.dictionary import Registry
from spm.store.keys import Distribution
from spm.store.pending import Commit
from spm.wire import I32, I64, U64, Envelope, slot_of


@dataclass(frozen=True, slots=True)
class Dead:
    """Samples of an envelope that can never be stored, and why."""

    envelope: Envelope
    samples: int
    cause: str


@dataclass(frozen=True, slots=True)
class Batch:
    """Bytes ready to be put, by step; writing them again is harmless."""

    steps: tuple[Step, ...]
    samples: int
    dead: tuple[Dead, ...]


class Writer:
    """Turns envelopes into rows and makes them durable. One per process; thread-safe."""

    def __init__(self, backend: Backend, distribution: Distribution, writer_id: int | None = None) -> None:
        self._backend, self._distribution = backend, distribution
        self._registry = Registry(backend)
        self._writer_id = clock.random_u64() if writer_id is None else writer_id
        self._sequence = 0

    def write(self, envelopes: Sequence[Envelope]) -> Batch:
        """Make the envelopes durable; raises ``StoreUnavailable`` when that is not sure (write them again)."""
        batch = self.prepare(envelopes)
        self.commit(batch)
        return batch

    def prepare(self, envelopes: Sequence[Envelope]) -> Batch:
        """Register the series and make the bytes of the batch."""
        log: list[RowPut] = []
        commits: list[RowPut] = []
        accounts: list[RowPut] = []
        dead: list[Dead] = []
        for app in dict.fromkeys(e.app for e in envelopes):
            rows = _Rows.of([e for e in envelopes if e.app == app])
            usable = self._register(rows, dead)
            part = _rows_of(app, rows, usable, self._distribution, clock.random_u64())
            log += part[0]
            commits += part[1]
            accounts += self._accounts(app, rows, dead)
        steps: list[Step] = [("log", log), ("ledger", accounts), ("pending", commits)]
        samples = sum(map(len, envelopes)) - sum(d.samples for d in dead)
        return Batch(tuple(s for s in steps if s[1]), samples, tuple(dead))

    def commit(self, batch: Batch) -> None:
        """Put a prepared batch. May be repeated."""
        self._backend.put(batch.steps)

    def _register(self, rows: "_Rows", dead: list[Dead]) -> np.ndarray:
        """Series of the batch made durable; bool[S] of those that may be written."""
        usable = np.ones(len(rows.series), np.bool_)
        for number, envelope in enumerate(rows.envelopes):
            collided = self._registry.register(envelope.app, envelope.series)
            for i in collided:
                usable[np.searchsorted(rows.series, envelope.series.ids[i])] = False
            if len(collided):
                lost = int(np.isin(envelope.series_index, collided).sum())
                dead.append(Dead(rows.envelopes[number], lost, "series id already stands for another series"))
        return usable

    def _accounts(self, app: int, rows: "_Rows", dead: Sequence[Dead]) -> list[RowPut]:
        """Ledger rows for what was rejected by the parser or is dead: one per outcome, write-once."""
        refused = [(e, e.rejected) for e in rows.envelopes if e.rejected]
        lost = [(d.envelope, d.samples) for d in dead if d.envelope.app == app]
        puts: list[RowPut] = []
        for outcome, items in ((pending.REJECTED, refused), (pending.DEAD, lost)):
            if not items:
                continue
            envelopes = [e for e, _ in items]
            samples = np.array([n for _, n in items], np.int64)
            commit = Commit(_messages(envelopes), samples, _ids(envelopes), 0, 0, ())
            self._sequence = (self._sequence + 1) & keys.U32
            key = keys.ledger(app, envelopes[0].stamp.ms // 60_000, self._writer_id, self._sequence)
            puts.append((key, {pending.COLUMN: pending.encode(commit, blocks.LEDGER, outcome)}))
        return puts


@dataclass(frozen=True, slots=True)
class _Rows:
    """All samples of one app's envelopes as columns: ``owner`` i32 into the sorted ``series``, ``message`` i32."""

    envelopes: list[Envelope]
    series: U64
    metrics: U64
    owner: I32
    message: I32
    ts: I64
    values: np.ndarray

    @classmethod
    def of(cls, envelopes: list[Envelope]) -> "_Rows":
        ids = np.concatenate([e.series.ids for e in envelopes])
        series, first, index = np.unique(ids, return_index=True, return_inverse=True)
        metrics = np.concatenate([e.series.metrics for e in envelopes])[first]
        tables = np.split(index.astype(np.int32), np.cumsum([len(e.series) for e in envelopes])[:-1])
        owner = np.concatenate([t[e.series_index] for t, e in zip(tables, envelopes, strict=True)])
        message = np.repeat(np.arange(len(envelopes), dtype=np.int32), list(map(len, envelopes)))
        ts = np.concatenate([e.ts for e in envelopes])
        return cls(envelopes, series, metrics, owner, message, ts, np.concatenate([e.values for e in envelopes]))


def _rows_of(
    app: int, rows: _Rows, usable: np.ndarray, distribution: Distribution, batch: int
) -> tuple[list[RowPut], list[RowPut]]:
    """The rows of `log` and of `pending` of one app's part of the batch: one block per (bucket, slot)."""
    ingest_ms = min(e.stamp.ms for e in rows.envelopes)
    buckets = distribution.of(app, rows.metrics)
    slots = slot_of(rows.ts)
    units = _units(rows, slots, buckets, usable)
    names = tuple((bucket, slot) for bucket, slot, _ in units)
    log: list[RowPut] = []
    cells: dict[int, dict[bytes, bytes]] = {}
    for bucket, slot, taken in units:
        key = keys.LogKey(bucket, app, slot, ingest_ms, batch)
        block, commit = _block(rows, taken, names)
        log.append((key.to_bytes(), {pending.COLUMN: block.to_bytes()}))
        cells.setdefault(bucket, {})[keys.slot_column(slot)] = pending.encode(commit, batch=batch)
    return log, [(keys.PendingKey(b, app, ingest_ms, batch).to_bytes(), c) for b, c in cells.items()]


def _units(rows: _Rows, slots: I64, buckets: np.ndarray, usable: np.ndarray) -> list[tuple[int, int, np.ndarray | None]]:
    """(bucket, slot, its rows) of every unit the batch touches; rows ``None``: all of them."""
    if not len(slots):
        return []
    same_slot = bool((slots == slots[0]).all())
    if same_slot and bool((buckets == buckets[0]).all()) and bool(usable.all()):
        return [(int(buckets[0]), int(slots[0]), None)]
    unit = slots * 256 + buckets[rows.owner]
    unit[~usable[rows.owner]] = -1
    found = [int(u) for u in np.unique(unit) if u >= 0]
    return [(u & 255, u >> 8, np.flatnonzero(unit == u)) for u in found]


def _block(rows: _Rows, taken: np.ndarray | None, names: tuple[tuple[int, int], ...]) -> tuple[LogBlock, Commit]:
    owner, message, ts, values = rows.owner, rows.message, rows.ts, rows.values
    if taken is not None:
        owner, message, ts, values = owner[taken], message[taken], ts[taken], values[taken]
    counts, order = kernels.group_by_series(owner, len(rows.series))
    held = counts > 0
    used, samples = np.unique(message, return_counts=True)
    number = np.empty(len(rows.envelopes), np.int32)
    number[used] = np.arange(len(used), dtype=np.int32)
    envelopes = [rows.envelopes[i] for i in used]
    table = _messages(envelopes)
    block = LogBlock(
        table, rows.series[held], rows.metrics[held], counts[held], number[message[order]], ts[order], values[order]
    )
    commit = Commit(table, samples.astype(np.int64), _ids(envelopes), int(ts.min()), int(ts.max()), names)
    return block, commit


def _messages(envelopes: Sequence[Envelope]) -> Messages:
    sources = list(dict.fromkeys(e.source for e in envelopes))
    number = {name: i for i, name in enumerate(sources)}
    return Messages(
        np.array([e.stamp.ms for e in envelopes], np.int64),
        np.array([e.stamp.process for e in envelopes], np.int64),
        np.array([e.stamp.sequence for e in envelopes], np.int64),
        np.array([number[e.source] for e in envelopes], np.int32),
        tuple(sources),
    )


def _ids(envelopes: Sequence[Envelope]) -> np.ndarray:
    return np.frombuffer(b"".join(e.message_id for e in envelopes), np.uint8).copy()
