"""The one way into the store: a batch of envelopes becomes blocks, commit records and account rows (rule 6).

Enter by ``Writer.write``. Order: series, log, pending, then a look whether the distribution used is still open (rule
22b), and only then may the caller acknowledge. A retry of the same ``Batch`` has the same id and the same bytes;
whatever is written twice is merged by the reader. Samples that no row may hold go to `dead`, and the ledger says so.
Used by the direct transport and by the queue's workers alike; no Django, no Celery here.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from spm import clock, limits
from spm.store import blocks, dead, distribution, kernels, keys, pending
from spm.store.backends.base import Backend, RowPut, Step
from spm.store.blocks import LogBlock, Messages
from spm.store.dead import Letter
from spm.store.dictionary import Registry
from spm.store.keys import Distribution, Epoch
from spm.store.pending import Commit
from spm.wire import F64, I32, I64, U8, U64, Envelope, SeriesTable, slot_of

BOOL = npt.NDArray[np.bool_]
COLLIDED = "its series' id already stands for another series"
TIMELESS = "its time is not between 1970 and 9999"


@dataclass(frozen=True, slots=True)
class Dead:
    """Samples that can never be stored, as an envelope of their own, and why."""

    envelope: Envelope
    cause: str

    @property
    def samples(self) -> int:
        """How many."""
        return len(self.envelope)


@dataclass(frozen=True, slots=True)
class Part:
    """What a batch holds of one app, and the epoch by which it was placed."""

    app: int
    epoch: Epoch
    rows: "_Rows"


@dataclass(frozen=True, slots=True)
class Batch:
    """Bytes ready to be put, by step; writing them again is harmless."""

    steps: tuple[Step, ...]
    samples: int
    dead: tuple[Dead, ...]
    parts: tuple[Part, ...] = ()


class Writer:
    """Turns envelopes into rows and makes them durable. One per process; thread-safe.

    ``default`` is in force for apps for which the store names no distribution; what it names is remembered, and looked
    at again after every batch.
    """

    def __init__(self, backend: Backend, default: Distribution, writer_id: int | None = None) -> None:
        self._backend, self._default = backend, default
        self._registry = Registry(backend)
        self._writer_id = clock.random_u64() if writer_id is None else writer_id
        self._sequence = itertools.count()
        self._batches = itertools.count(clock.random_u64())
        self._placing: dict[int, Distribution] = {}

    def write(self, envelopes: Sequence[Envelope]) -> Batch:
        """Make the envelopes durable; raises ``StoreUnavailable`` when that is not sure (write them again)."""
        batch = self.prepare(envelopes)
        self.commit(batch)
        return batch

    def prepare(self, envelopes: Sequence[Envelope]) -> Batch:
        """Register the series and make the bytes of the batch.

        1. what cannot be stored is taken out, as envelopes of its own;
        2. each app's envelopes become one batch (several where they touch very many hours);
        3. each batch becomes blocks by unit and their commit records.
        """
        lost: list[Dead] = []
        kept = [self._storable(envelope, lost) for envelope in envelopes]
        apps = list(dict.fromkeys(e.app for e in kept if len(e)))
        placing = self._distributions(apps)
        parts = tuple(
            Part(app, placing[app].newest, _Rows.of(group))
            for app in apps
            for group in _groups([e for e in kept if e.app == app and len(e)])
        )
        log, commits = self._placed(parts)
        letters = [_letter(d) for d in lost]
        steps: list[Step] = [("log", log), *letters, ("ledger", self._accounts(envelopes, lost)), ("pending", commits)]
        return Batch(tuple(s for s in steps if s[1]), sum(map(len, kept)), tuple(lost), parts)

    def commit(self, batch: Batch) -> None:
        """Put a prepared batch. May be repeated.

        1. its steps;
        2. the distributions are read again, by one get: what lies where an epoch closes is put once more, as another
           batch under the newest epoch, since nobody may look there for long; and so on until every epoch is open.
        """
        self._backend.put(batch.steps)
        parts = batch.parts
        while parts := self._misplaced(parts):
            log, commits = self._placed(parts)
            self._backend.put([("log", log), ("pending", commits)])

    def _misplaced(self, parts: Sequence[Part]) -> tuple[Part, ...]:
        """The parts whose epoch is no longer open, each with the newest one now."""
        if not parts:
            return ()
        now = self._read(list(dict.fromkeys(part.app for part in parts)))
        closing = [part for part in parts if now[part.app].epoch(part.epoch.number) != part.epoch]
        return tuple(replace(part, epoch=now[part.app].newest) for part in closing)

    def _distributions(self, apps: Sequence[int]) -> dict[int, Distribution]:
        """As they were when last looked at; read where this process never did."""
        known = dict(self._placing)
        unknown = [app for app in apps if app not in known]
        return known | self._read(unknown) if unknown else known

    def _read(self, apps: Sequence[int]) -> dict[int, Distribution]:
        found = distribution.read_many(self._backend, apps, self._default)
        if len(self._placing) + len(found) > limits.WRITER_APPS_MAX:
            self._placing = {}  # they are read again
        self._placing = self._placing | found
        return found

    def _placed(self, parts: Sequence[Part]) -> tuple[list[RowPut], list[RowPut]]:
        """The rows of `log` and of `pending`: a batch of its own for each part."""
        log: list[RowPut] = []
        commits: list[RowPut] = []
        for part in parts:
            rows = _rows_of(part, next(self._batches) & keys.U64)
            log += rows[0]
            commits += rows[1]
        return log, commits

    def _storable(self, envelope: Envelope, lost: list[Dead]) -> Envelope:
        """The envelope with its series made durable, without samples that no row may hold."""
        if len(envelope) and not (envelope.ts.min() > 0 and envelope.ts.max() <= limits.TIME_MAX_MS):
            fine = (envelope.ts > 0) & (envelope.ts <= limits.TIME_MAX_MS)
            lost.append(Dead(_only(envelope, ~fine), TIMELESS))
            envelope = _only(envelope, fine)
        collided = self._registry.register(envelope.app, envelope.series)
        if not len(collided):
            return envelope
        fine = ~np.isin(envelope.series_index, collided)
        lost.append(Dead(_only(envelope, ~fine), COLLIDED))
        return _only(envelope, fine)

    def _accounts(self, envelopes: Sequence[Envelope], lost: Sequence[Dead]) -> list[RowPut]:
        """Ledger rows for what was rejected by the parser or is dead: one per app and outcome, write-once."""
        counted = [(e, pending.REJECTED, e.rejected) for e in envelopes if e.rejected]
        counted += [(d.envelope, pending.DEAD, d.samples) for d in lost if d.samples]
        puts: list[RowPut] = []
        for app, outcome in dict.fromkeys((e.app, outcome) for e, outcome, _ in counted):
            items = [(e, n) for e, o, n in counted if (e.app, o) == (app, outcome)]
            named = [e for e, _ in items]
            commit = Commit(_messages(named), np.array([n for _, n in items], np.int64), _ids(named), 0, 0, ())
            key = keys.ledger(app, named[0].stamp.ms // 60_000, self._writer_id, next(self._sequence) & keys.U32)
            puts.append((key, {pending.COLUMN: pending.encode(commit, blocks.LEDGER, outcome)}))
        return puts


def _only(envelope: Envelope, rows: BOOL) -> Envelope:
    """The same message with these samples alone, and only the series they name."""
    used, index = np.unique(envelope.series_index[rows], return_inverse=True)
    series = SeriesTable.from_canonical([envelope.series.canonical(int(i)) for i in used])
    table = replace(series, ids=envelope.series.ids[used], metrics=envelope.series.metrics[used])
    return replace(
        envelope, series=table, series_index=index.astype(np.int32), ts=envelope.ts[rows], values=envelope.values[rows]
    )


def _letter(part: Dead) -> Step:
    """The dead letter of samples that died; a cell holds the first of very many."""
    first = _only(part.envelope, np.arange(part.samples) < limits.DEAD_SAMPLES_MAX)
    letter = Letter(dead.MESSAGE, part.cause, first.to_bytes())
    return dead.step(first.app, first.stamp.ms, dead.part_name(first.message_id, first.stamp, part.cause), letter)


def _groups(envelopes: list[Envelope]) -> Iterator[list[Envelope]]:
    """Envelopes that become one batch: all of them, unless they touch more than ``BATCH_SLOTS_MAX`` hours together."""
    if not envelopes:
        return
    first = min(int(e.ts.min()) for e in envelopes)
    last = max(int(e.ts.max()) for e in envelopes)
    if last - first < limits.BATCH_SLOTS_MAX * limits.HOUR_MS:
        yield envelopes
        return
    group: list[Envelope] = []
    slots: set[int] = set()
    for envelope in envelopes:
        touched = set(np.unique(slot_of(envelope.ts)).tolist())
        if group and len(slots | touched) > limits.BATCH_SLOTS_MAX:
            yield group
            group, slots = [], set()
        group.append(envelope)
        slots |= touched
    yield group


@dataclass(frozen=True, slots=True)
class _Rows:
    """All samples of one app's envelopes as columns: ``owner`` i32 into the sorted ``series``, ``message`` i32."""

    envelopes: list[Envelope]
    series: U64
    metrics: U64
    owner: I32
    message: I32
    ts: I64
    values: F64

    @classmethod
    def of(cls, envelopes: list[Envelope]) -> "_Rows":
        ids = np.concatenate([e.series.ids for e in envelopes])
        metrics = np.concatenate([e.series.metrics for e in envelopes])
        _, first, index = np.unique(ids, return_index=True, return_inverse=True)
        if not np.array_equal(metrics[first][index], metrics):  # one id under two metrics: they are two series
            _, first, index = np.unique(np.stack([ids, metrics]), axis=1, return_index=True, return_inverse=True)
        tables = np.split(index.ravel().astype(np.int32), np.cumsum([len(e.series) for e in envelopes])[:-1])
        owner = np.concatenate([t[e.series_index] for t, e in zip(tables, envelopes, strict=True)])
        message = np.repeat(np.arange(len(envelopes), dtype=np.int32), list(map(len, envelopes)))
        ts = np.concatenate([e.ts for e in envelopes])
        values = np.concatenate([e.values for e in envelopes])
        return cls(envelopes, ids[first], metrics[first], owner, message, ts, values)


def _rows_of(part: Part, batch: int) -> tuple[list[RowPut], list[RowPut]]:
    """The rows of `log` and of `pending` of one batch: one block per (bucket, slot)."""
    app, rows = part.app, part.rows
    ingest_ms = min(e.stamp.ms for e in rows.envelopes)
    units = _units(rows, part.epoch.of(app, rows.metrics))
    names = tuple((bucket, slot) for bucket, slot, _ in units)
    log: list[RowPut] = []
    cells: dict[int, dict[bytes, bytes]] = {}
    for bucket, slot, taken in units:
        key = keys.LogKey(bucket, app, slot, ingest_ms, batch)
        block, commit = _block(rows, taken, names)
        log.append((key.to_bytes(), block.to_cells()))
        cells.setdefault(bucket, {})[keys.slot_column(slot)] = pending.encode(commit, batch=batch)
    return log, [(keys.PendingKey(b, app, ingest_ms, batch).to_bytes(), c) for b, c in cells.items()]


def _units(rows: _Rows, buckets: U8) -> list[tuple[int, int, I64 | None]]:
    """(bucket, slot, its rows in order of arrival) of every unit the batch touches; rows ``None``: all of them."""
    slots = slot_of(rows.ts)
    if bool((slots == slots[0]).all()) and bool((buckets == buckets[0]).all()):
        return [(int(buckets[0]), int(slots[0]), None)]
    unit = slots * 256 + buckets[rows.owner]
    order = np.argsort(unit, kind="stable")
    cuts = np.flatnonzero(np.diff(unit[order])) + 1
    return [(int(unit[part[0]]) & 255, int(unit[part[0]]) >> 8, part) for part in np.split(order, cuts)]


def _block(rows: _Rows, taken: I64 | None, names: tuple[tuple[int, int], ...]) -> tuple[LogBlock, Commit]:
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


def _ids(envelopes: Sequence[Envelope]) -> U8:
    return np.frombuffer(b"".join(e.message_id for e in envelopes), np.uint8).copy()
