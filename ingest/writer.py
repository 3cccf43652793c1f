"""The one way into the store: a batch of envelopes becomes blocks, commit records and account rows (rule 6).

Enter by ``Writer.write``; by ``Writer.bury`` with a message that no row can hold. Order: series, log, pending, then a
look whether the distribution used is still open (rule 22b), and only then may the caller acknowledge. A retry of the
same ``Batch`` has the same id and the same bytes; whatever is written twice is merged by the reader. Samples that no
row may hold go to `dead`, and the ledger says so.
Used by the direct transport and by the queue's workers alike; no Django, no Celery here.
"""

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from spm import clock, limits
from spm.arrays import BOOL, F64, I32, I64, U8, U64
from spm.envelope_batch import Envelopes
from spm.store import epochs, keys
from spm.store.backends.base import Backend, RowPut, Step
from spm.store.dictionary import SeriesRegistry
from spm.store.encoding import blocks, kernels
from spm.store.encoding.blocks import LogBlock, Messages
from spm.store.keys import Distribution, Epoch
from spm.store.ledger import commit_records
from spm.store.ledger import dead_letters as dead
from spm.store.ledger.commit_records import Commit
from spm.store.ledger.dead_letters import DeadLetter
from spm.wire import Envelope, hour_of

COLLIDED = "its series' id already stands for another series"
TIMELESS = "its time is not between 1970 and 9999"


@dataclass(frozen=True, slots=True)
class Dead:
    """Samples that can never be stored, as an envelope of their own, and why."""

    envelope: Envelope
    cause: str
    total: int  # samples of the whole message

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

    def __init__(self, backend: Backend, default: Distribution) -> None:
        self._backend, self._default = backend, default
        self._registry = SeriesRegistry(backend)
        self._batches = itertools.count(clock.random_u64())
        self._placing: dict[int, Distribution] = {}

    def write(self, envelopes: Sequence[Envelope] | Envelopes) -> Batch:
        """Make the envelopes durable; raises ``StoreUnavailable`` when that is not sure (write them again)."""
        batch = self.prepare(envelopes)
        self.commit(batch)
        return batch

    def prepare(self, envelopes: Sequence[Envelope] | Envelopes) -> Batch:
        """Register the series and make the bytes of the batch.

        1. what cannot be stored is taken out, as envelopes of its own;
        2. each app's envelopes become one batch (several where they touch very many hours);
        3. each batch becomes blocks by unit and their commit records.
        """
        whole = envelopes if isinstance(envelopes, Envelopes) else Envelopes.of(envelopes)
        kept, lost = self._storable(whole)
        held = kept.samples > 0
        apps = sorted(set(kept.app[held].tolist()))  # of few messages that is a tenth of what np.unique costs
        placing = self._distributions(apps)
        parts = tuple(
            Part(app, placing[app].newest, _Rows.of(group))
            for app in apps
            for group in _groups(kept.take(held & (kept.app == app)))
        )
        log, commits = self._placed(parts)
        letters = [_letter(d.envelope, d.cause) for d in lost]
        steps: list[Step] = [("log", log), *letters, ("ledger", _accounts(whole, lost)), ("pending", commits)]
        return Batch(tuple(s for s in steps if s[1]), len(kept.ts), tuple(lost), parts)

    def bury(self, envelope: Envelope, cause: str) -> None:
        """Make a whole message a dead letter, with its account; ``StoreUnavailable`` when that is not sure."""
        self._backend.put(burial(envelope, cause))

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
        found = epochs.read_many(self._backend, apps, self._default)
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

    def _storable(self, whole: Envelopes) -> tuple[Envelopes, list[Dead]]:
        """The messages with their series made durable, without samples that no row may hold; and these."""
        kept, lost = whole, list[Dead]()
        if len(kept.ts) and not (kept.ts.min() > 0 and kept.ts.max() <= limits.TIME_MAX_MS):
            fine = (kept.ts > 0) & (kept.ts <= limits.TIME_MAX_MS)
            lost += _deaths(kept, ~fine, TIMELESS, whole.samples)
            kept = kept.only(fine)
        collided = self._collided(kept)
        if collided is not None:
            lost += _deaths(kept, collided, COLLIDED, whole.samples)
            kept = kept.only(~collided)
        return kept, lost

    def _collided(self, kept: Envelopes) -> BOOL | None:
        """Register all series; the samples whose series' id stands for another one, if there are any."""
        apps = sorted(set(kept.app.tolist()))
        found: BOOL | None = None
        for app in apps:
            entries = _entries(kept, None if len(apps) == 1 else kept.app == app)
            wrong = entries[self._registry.register(app, kept.series.rows(entries))]
            if len(wrong):
                of_app = np.repeat(kept.app == app, kept.samples)
                here = np.isin(kept.series_index, wrong) & of_app
                found = here if found is None else found | here
        return found


def burial(envelope: Envelope, cause: str) -> list[Step]:
    """The steps that make a whole message a dead letter: the letter, then its account."""
    death = Dead(envelope, cause, len(envelope))
    return [_letter(envelope, cause), ("ledger", _accounts(Envelopes.of([envelope]), [death]))]


def _entries(kept: Envelopes, messages: BOOL | None) -> I64:
    """The entries of the joined series that these messages have (``None``: all messages)."""
    if messages is None:
        return np.arange(len(kept.series))
    mine = np.zeros(len(kept.series) + 1, np.int64)
    np.add.at(mine, kept.table_starts[messages], 1)
    np.add.at(mine, kept.table_ends[messages], -1)
    return np.flatnonzero(np.cumsum(mine[:-1]) > 0)


def _deaths(kept: Envelopes, rows: BOOL, cause: str, totals: I64) -> list[Dead]:
    """These samples as envelopes of their own, message by message: they are few."""
    dying = np.flatnonzero(np.bincount(kept.message[rows], minlength=len(kept)))
    return [Dead(_alone(kept, int(i), rows), cause, int(totals[i])) for i in dying]


def _alone(kept: Envelopes, number: int, rows: BOOL) -> Envelope:
    chosen = np.arange(len(kept)) == number
    return kept.take(chosen).only(rows[np.repeat(chosen, kept.samples)])[0]


def _letter(envelope: Envelope, cause: str) -> Step:
    """The dead letter of samples that died; a cell holds the first of very many."""
    kept = limits.DEAD_SAMPLES_MAX
    body = _first(envelope, kept).to_bytes()
    while len(body) > limits.DEAD_BODY_BYTES_MAX and kept > 1:
        kept //= 2
        body = _first(envelope, kept).to_bytes()
    letter = DeadLetter(dead.MESSAGE, cause, body)
    name = dead.part_name(envelope.message_id, envelope.stamp, cause)
    return dead.step(envelope.app, envelope.stamp.ms, name, letter)


def _first(envelope: Envelope, samples: int) -> Envelope:
    if len(envelope) <= samples:
        return envelope
    return Envelopes.of([envelope]).only(np.arange(len(envelope)) < samples)[0]


def _accounts(whole: Envelopes, lost: Sequence[Dead]) -> list[RowPut]:
    """Ledger rows of what the parser rejected and of what is dead; a message without samples is settled by its own.

    One row per stamp, outcome and cause, under a key made of these: whoever writes it again writes the same.
    """
    of_note = np.flatnonzero((whole.rejected > 0) | (whole.samples == 0))
    rejected = [_account(whole[int(i)], commit_records.REJECTED, int(whole.rejected[i]), "") for i in of_note]
    return rejected + [_account(d.envelope, commit_records.DEAD, d.samples, d.cause, total=d.total) for d in lost]


def _account(envelope: Envelope, outcome: int, samples: int, cause: str, total: int | None = None) -> RowPut:
    stamp, one = envelope.stamp, Envelopes.of([envelope])
    name = f"{stamp.ms}.{stamp.process}.{stamp.sequence} {outcome} {cause}".encode()
    digest = hashlib.blake2b(name, digest_size=12).digest()
    writer, sequence = int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:], "big")
    totals = np.array([len(envelope) if total is None else total], np.int64)
    table = _messages(one, np.zeros(1, np.int64))
    commit = Commit(table, np.array([samples], np.int64), one.message_ids, 0, 0, (), totals)
    key = keys.ledger(envelope.app, stamp.ms // 60_000, writer, sequence)
    return key, {commit_records.COLUMN: commit_records.encode(commit, blocks.LEDGER, outcome)}


def _groups(envelopes: Envelopes) -> Iterator[Envelopes]:
    """Messages that become one batch: all, unless they touch more than ``BATCH_HOURS_MAX`` hours together."""
    if int(envelopes.ts.max()) - int(envelopes.ts.min()) < limits.BATCH_HOURS_MAX * limits.HOUR_MS:
        yield envelopes
        return
    first, hours = 0, set[int]()
    pieces = np.split(hour_of(envelopes.ts), np.cumsum(envelopes.samples)[:-1])
    numbers = np.arange(len(envelopes))
    for number, piece in enumerate(pieces):
        touched = set(np.unique(piece).tolist())
        if number > first and len(hours | touched) > limits.BATCH_HOURS_MAX:
            yield envelopes.take((numbers >= first) & (numbers < number))
            first, hours = number, set()
        hours |= touched
    yield envelopes.take(numbers >= first)


@dataclass(frozen=True, slots=True)
class _Rows:
    """All samples of one app's messages as columns: ``owner`` i32 into the sorted ``series``, ``message`` i32."""

    envelopes: Envelopes
    series: U64
    metrics: U64
    owner: I32
    message: I32
    ts: I64
    values: F64

    @classmethod
    def of(cls, envelopes: Envelopes) -> "_Rows":
        ids, metrics = envelopes.series.ids, envelopes.series.metrics
        _, first, index = np.unique(ids, return_index=True, return_inverse=True)
        if not np.array_equal(metrics[first][index], metrics):  # one id under two metrics: they are two series
            _, first, index = np.unique(np.stack([ids, metrics]), axis=1, return_index=True, return_inverse=True)
        owner = index.ravel().astype(np.int32)[envelopes.series_index]
        return cls(envelopes, ids[first], metrics[first], owner, envelopes.message, envelopes.ts, envelopes.values)


def _rows_of(part: Part, batch: int) -> tuple[list[RowPut], list[RowPut]]:
    """The rows of `log` and of `pending` of one batch: one block per (shard, hour)."""
    app, rows = part.app, part.rows
    ingest_ms = int(rows.envelopes.ms.min())
    units = _units(rows, part.epoch.of(app, rows.metrics))
    names = tuple((shard, hour) for shard, hour, _ in units)
    log: list[RowPut] = []
    cells: dict[int, dict[bytes, bytes]] = {}
    for shard, hour, taken in units:
        key = keys.LogKey(shard, app, hour, ingest_ms, batch)
        block, commit = _block(rows, taken, names, part.epoch.number)
        log.append((key.to_bytes(), block.to_cells()))
        cells.setdefault(shard, {})[keys.hour_column(hour)] = commit_records.encode(commit, batch=batch)
    return log, [(keys.PendingKey(b, app, ingest_ms, batch).to_bytes(), c) for b, c in cells.items()]


def _units(rows: _Rows, shards: U8) -> list[tuple[int, int, I64 | None]]:
    """(shard, hour, its rows in order of arrival) of every unit the batch touches; rows ``None``: all of them."""
    hours = hour_of(rows.ts)
    if bool((hours == hours[0]).all()) and bool((shards == shards[0]).all()):
        return [(int(shards[0]), int(hours[0]), None)]
    unit = hours * 256 + shards[rows.owner]
    order = np.argsort(unit, kind="stable")
    cuts = np.flatnonzero(np.diff(unit[order])) + 1
    return [(int(unit[part[0]]) & 255, int(unit[part[0]]) >> 8, part) for part in np.split(order, cuts)]


def _block(rows: _Rows, taken: I64 | None, names: tuple[tuple[int, int], ...], epoch: int) -> tuple[LogBlock, Commit]:
    owner, message, ts, values = rows.owner, rows.message, rows.ts, rows.values
    if taken is not None:
        owner, message, ts, values = owner[taken], message[taken], ts[taken], values[taken]
    counts, order = kernels.group_by_series(owner, len(rows.series))
    held = counts > 0
    samples = np.bincount(message, minlength=len(rows.envelopes))
    used = np.flatnonzero(samples)
    number = np.empty(len(rows.envelopes), np.int32)
    number[used] = np.arange(len(used), dtype=np.int32)
    table = _messages(rows.envelopes, used)
    block = LogBlock(
        table, rows.series[held], rows.metrics[held], counts[held], number[message[order]], ts[order], values[order]
    )
    ids = rows.envelopes.message_ids.reshape(-1, 16)[used].ravel()
    commit = Commit(table, samples[used], ids, int(ts.min()), int(ts.max()), names, epoch=epoch)
    return block, commit


def _messages(envelopes: Envelopes, used: I64) -> Messages:
    """The table of these messages, with the sources that they have."""
    of_used = envelopes.source[used].tolist()
    named = {number: place for place, number in enumerate(sorted(set(of_used)))}
    source = np.array([named[number] for number in of_used], np.int32)
    columns = (envelopes.ms[used], envelopes.process[used], envelopes.sequence[used])
    return Messages(*columns, source, tuple(envelopes.sources[number] for number in named))
