"""The one way into the store: a batch of envelopes becomes blocks, commit records and ledger rows (PROTOCOL 6).

Enter by ``Writer.write``, or by ``Writer.write_dead_letter`` with a message that no row can hold. Order: series, log,
dead letters, ledger, pending, then a check that the placement epoch used is still open (PROTOCOL 22b); only then may
the caller acknowledge. A retry of one ``WriteBatch`` has its id and its bytes; what is written twice is merged by the
reader. Samples that no row may hold go to `dead`, and the ledger counts them. Used by the direct transport and by the
queue's workers alike; no Django, no Celery here.
"""

import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from ingest.part_encoding import AppPart, SampleColumns, encode_part, messages_table
from spm import clock, limits
from spm.arrays import BOOL, I64, U32
from spm.envelope_batch import Envelopes
from spm.errors import AppUnavailable, CorruptBlock
from spm.store import epochs, keys
from spm.store.backends.base import Backend, RowPut, Step, taken
from spm.store.dictionary import COLUMN, NewSeries, SeriesRegistry
from spm.store.encoding import blocks
from spm.store.keys import PlacementTable
from spm.store.ledger import commit_records, dead_letters
from spm.store.ledger.commit_records import BatchRows, Commit
from spm.store.ledger.dead_letters import DeadLetter
from spm.wire import Envelope, concatenate, hour_of

COLLIDED = "its series' id already stands for another series"
_MEND = "`bin/manage fsck` names it. The messages are kept and written once it is mended."
TIMELESS = "its time is not between 1970 and 9999"


@dataclass(frozen=True, slots=True)
class DeadSamples:
    """Samples of one message that can never be stored, as an envelope of their own, and why."""

    envelope: Envelope
    cause: str
    total: int  # samples of the whole message

    @property
    def samples(self) -> int:
        """The number of dead samples."""
        return len(self.envelope)


@dataclass(frozen=True, slots=True)
class WriteBatch:
    """Bytes ready to be put, by step, and the new series to be put before them; writing them again is harmless.

    ``messages`` are what was to be written, all of them.
    """

    messages: Envelopes
    series: NewSeries
    steps: tuple[Step, ...]
    samples: int
    dead: tuple[DeadSamples, ...]
    parts: tuple[AppPart, ...] = ()


class Writer:
    """Turns envelopes into rows and makes them durable. One per process; thread-safe.

    ``default`` is the placement table of apps for which the store has none. Tables of the store are remembered, and
    read again after every batch.
    """

    def __init__(self, backend: Backend, default: PlacementTable) -> None:
        self._backend, self._default = backend, default
        self._registry = SeriesRegistry(backend)
        self._batches = itertools.count(clock.random_u64())
        self._tables: dict[int, PlacementTable] = {}  # by app, as last read

    def write(self, envelopes: Sequence[Envelope] | Envelopes) -> WriteBatch:
        """Make the envelopes durable; raise ``StoreUnavailable`` when that is not certain (write them again)."""
        batch = self.prepare(envelopes)
        self.commit(batch)
        return batch

    def prepare(self, envelopes: Sequence[Envelope] | Envelopes) -> WriteBatch:
        """Look up the series and make the bytes of the batch; raise ``AppUnavailable`` if our own rows forbid it.

        1. samples that cannot be stored become envelopes of their own;
        2. each app's envelopes become one part (several where they touch very many hours, or were accepted far apart);
        3. each part becomes blocks by HourShard and their commit records.
        """
        messages = envelopes if isinstance(envelopes, Envelopes) else Envelopes.of(envelopes)
        with _at_fault_are_we():
            return self._prepare(messages)

    def _prepare(self, messages: Envelopes) -> WriteBatch:
        storable, series, dead = self._storable(messages)
        filled = storable.select_messages(storable.samples > 0)
        apps = sorted(set(filled.app.tolist()))  # for few messages a tenth of the cost of np.unique
        tables = self._placement_tables(apps)
        parts = tuple(
            AppPart(app, tables[app].newest, SampleColumns.of(group))
            for app in apps
            for alike in _split_by_stamps(filled.select_messages(filled.app == app) if len(apps) > 1 else filled)
            for group in _split_by_hours(alike)
        )
        log, commits = self._encode(parts)
        dead_letter_rows = [_dead_letter_step(d.envelope, d.cause) for d in dead]
        ledger = _ledger_rows(messages, dead)
        steps: list[Step] = [("log", log), *dead_letter_rows, ("ledger", ledger), ("pending", commits)]
        return WriteBatch(messages, series, tuple(s for s in steps if s[1]), len(storable.ts), tuple(dead), parts)

    def write_dead_letter(self, envelope: Envelope, cause: str) -> None:
        """Make a whole message a dead letter, counted in the ledger; ``StoreUnavailable`` when that is not certain."""
        self._backend.put(dead_letter_steps(envelope, cause))

    def commit(self, batch: WriteBatch) -> None:
        """Put a prepared batch. May be repeated.

        1. Put its new series, then its steps. If another process has registered another series under one of the ids
           meanwhile, no step is put, and the messages are prepared again: these samples are dead.
        2. Read the placement tables again, by one get, or in the transaction that puts the steps. Parts whose epoch is
           closing are put once more, as another batch under the newest epoch, since readers may soon not look there
           any more. Repeat until every epoch is open.
        """
        while (tables := self._put(batch)) is None:
            batch = self.prepare(batch.messages)
        parts = batch.parts
        while parts := self._misplaced(parts, tables):
            with _at_fault_are_we():
                log, commits = self._encode(parts)
            tables = self._put_steps([("log", log), ("pending", commits)], parts)

    def _put(self, batch: WriteBatch) -> dict[int, PlacementTable] | None:
        """Put the series and the steps of a batch; return the placement tables as they are afterwards.

        ``None``: an id was taken, and no step was put.
        """
        if not batch.series:
            return self._put_steps(batch.steps, batch.parts)
        if taken(batch.series.rows, self._backend.put_new("series", COLUMN, batch.series.rows, batch.steps)):
            return None
        self._registry.remember(batch.series)
        with _at_fault_are_we():
            return self._read_tables(_apps_of(batch.parts))

    def _put_steps(self, steps: Sequence[Step], parts: Sequence[AppPart]) -> dict[int, PlacementTable]:
        """Put steps, then read the placement tables of the apps of these parts."""
        apps = _apps_of(parts)
        if not apps:
            self._backend.put(steps)
            return {}
        rows = self._backend.put_then_get(steps, "config", epochs.row_keys(apps), [epochs.COLUMN])
        with _at_fault_are_we():
            return self._remember(epochs.tables_of(apps, rows, self._default))

    def _misplaced(self, parts: Sequence[AppPart], tables: Mapping[int, PlacementTable]) -> tuple[AppPart, ...]:
        """Return the parts whose epoch is no longer open, each with its app's newest epoch."""
        closing = [part for part in parts if tables[part.app].epoch(part.epoch.number) != part.epoch]
        return tuple(replace(part, epoch=tables[part.app].newest) for part in closing)

    def _placement_tables(self, apps: Sequence[int]) -> dict[int, PlacementTable]:
        """Return the tables as last read; those that this process never read are read now."""
        known = dict(self._tables)
        unknown = [app for app in apps if app not in known]
        return known | self._read_tables(unknown) if unknown else known

    def _read_tables(self, apps: Sequence[int]) -> dict[int, PlacementTable]:
        return self._remember(epochs.read_many(self._backend, apps, self._default)) if apps else {}

    def _remember(self, tables: dict[int, PlacementTable]) -> dict[int, PlacementTable]:
        if len(self._tables) + len(tables) > limits.WRITER_APPS_MAX:
            self._tables = {}  # they are read again
        self._tables = self._tables | tables
        return tables

    def _encode(self, parts: Sequence[AppPart]) -> tuple[list[RowPut], list[RowPut]]:
        """Return the rows of `log` and of `pending`; each part gets a batch id of its own."""
        log: list[RowPut] = []
        commits: list[RowPut] = []
        for part in parts:
            rows = encode_part(part, next(self._batches) & keys.U64)
            log += rows[0]
            commits += rows[1]
        return log, commits

    def _storable(self, messages: Envelopes) -> tuple[Envelopes, NewSeries, list[DeadSamples]]:
        """Look up the series; return (the messages with the samples that a row may hold, new series, dead samples)."""
        storable, dead = messages, list[DeadSamples]()
        if len(storable.ts) and not (storable.ts.min() > 0 and storable.ts.max() <= limits.TIME_MAX_MS):
            has_time = (storable.ts > 0) & (storable.ts <= limits.TIME_MAX_MS)
            dead += _dead_samples(storable, ~has_time, TIMELESS, messages.samples)
            storable = storable.select_samples(has_time)
        collided, series = self._look_up(storable)
        if collided is not None:
            dead += _dead_samples(storable, collided, COLLIDED, messages.samples)
            storable = storable.select_samples(~collided)
        return storable, series, dead

    def _look_up(self, messages: Envelopes) -> tuple[BOOL | None, NewSeries]:
        """Return (the samples whose series' id stands for another one, ``None`` for none; the new series)."""
        apps, entries = _series_by_app(messages)
        wrong, series = self._registry.look_up(apps, messages.series.rows(entries))
        if not len(wrong):
            return None, series
        collided = np.zeros(len(messages.ts), np.bool_)
        for app in set(apps[wrong].tolist()):
            of_app = np.repeat(messages.app == app, messages.samples)
            collided |= np.isin(messages.series_index, np.arange(len(messages.series))[entries][wrong]) & of_app
        return collided, series


def _apps_of(parts: Sequence[AppPart]) -> list[int]:
    return list(dict.fromkeys([part.app for part in parts]))


@contextmanager
def _at_fault_are_we() -> Iterator[None]:
    """What a message cannot be blamed for is ``AppUnavailable``: its envelope was read and checked before."""
    try:
        yield
    except CorruptBlock as error:
        raise AppUnavailable("a row by which data is written is damaged", got=str(error), remedy=_MEND) from error
    except MemoryError as error:
        raise AppUnavailable("this process has no memory for the messages of an app") from error


def dead_letter_steps(envelope: Envelope, cause: str) -> list[Step]:
    """Return the steps that make a whole message a dead letter: the dead letter, then its ledger rows."""
    dead = DeadSamples(envelope, cause, len(envelope))
    return [_dead_letter_step(envelope, cause), ("ledger", _ledger_rows(Envelopes.of([envelope]), [dead]))]


def _series_by_app(envelopes: Envelopes) -> tuple[U32, I64 | slice]:
    """Return apps and entries of the joined series, so that each entry stands once with each app that uses it."""
    tables = dict.fromkeys(
        zip(envelopes.app.tolist(), envelopes.table_starts.tolist(), envelopes.table_ends.tolist(), strict=True)
    )
    apps = list({app for app, _, _ in tables})
    if len(apps) == 1:
        return np.full(len(envelopes.series), apps[0], np.uint32), slice(None)
    sizes = [end - start for _, start, end in tables]
    entries = [np.arange(start, end) for _, start, end in tables]
    return np.repeat(np.array([app for app, _, _ in tables], np.uint32), sizes), concatenate(entries, np.int64)


def _dead_samples(messages: Envelopes, rows: BOOL, cause: str, totals: I64) -> list[DeadSamples]:
    """Return these samples as envelopes of their own, message by message: they are few."""
    numbers = np.flatnonzero(np.bincount(messages.message[rows], minlength=len(messages)))
    return [DeadSamples(_single_message(messages, int(i), rows), cause, int(totals[i])) for i in numbers]


def _single_message(messages: Envelopes, number: int, rows: BOOL) -> Envelope:
    selected = np.arange(len(messages)) == number
    return messages.select_messages(selected).select_samples(rows[np.repeat(selected, messages.samples)])[0]


def _dead_letter_step(envelope: Envelope, cause: str) -> Step:
    """Return the step that stores a dead letter; one that is too large for a cell is several, with all samples."""
    rows: list[RowPut] = []
    first, samples, bodies = 0, limits.DEAD_SAMPLES_MAX, list[bytes]()
    while first < max(1, len(envelope)):
        body = _some_samples(envelope, first, samples).to_bytes()
        if len(body) > limits.DEAD_BODY_BYTES_MAX and samples > 1:
            samples = max(1, samples // 2)
            continue
        bodies.append(body)
        first += samples
    for part, body in enumerate(bodies):
        dead_letter = DeadLetter(dead_letters.MESSAGE, cause, body)
        name = dead_letters.part_name(envelope.message_id, envelope.stamp, cause, part)
        rows += dead_letters.step(envelope.app, envelope.stamp.ms, name, dead_letter)[1]
    return "dead", rows


def _some_samples(envelope: Envelope, first: int, samples: int) -> Envelope:
    """The envelope with at most so many of its samples, from the first one on."""
    if first == 0 and len(envelope) <= samples:
        return envelope
    numbers = np.arange(len(envelope))
    some = Envelopes.of([envelope]).select_samples((numbers >= first) & (numbers < first + samples))[0]
    return replace(some, rejected=some.rejected if first == 0 else 0)  # lines that its balance counts once


def _ledger_rows(messages: Envelopes, dead: Sequence[DeadSamples]) -> list[RowPut]:
    """Return the ledger rows of rejected and of dead samples; that of a message without samples settles it.

    There is one row per stamp, outcome and cause, under a key made of these: writing it again writes equal bytes.
    """
    nothing = not np.count_nonzero(messages.rejected) and np.count_nonzero(messages.samples) == len(messages)
    numbers = () if nothing else np.flatnonzero((messages.rejected > 0) | (messages.samples == 0))
    rejected = [_ledger_row(messages[int(i)], commit_records.REJECTED, int(messages.rejected[i]), "") for i in numbers]
    return rejected + [_ledger_row(d.envelope, commit_records.DEAD, d.samples, d.cause, total=d.total) for d in dead]


def _ledger_row(envelope: Envelope, outcome: int, samples: int, cause: str, total: int | None = None) -> RowPut:
    stamp, one = envelope.stamp, Envelopes.of([envelope])
    name = f"{stamp.ms}.{stamp.process}.{stamp.sequence} {outcome} {cause}".encode()
    digest = hashlib.blake2b(name, digest_size=12).digest()
    writer, sequence = int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:], "big")
    totals = np.array([len(envelope) if total is None else total], np.int64)
    table = messages_table(one, np.zeros(1, np.int64))
    commit = Commit(table, np.array([samples], np.int64), one.message_ids, 0, 0, BatchRows.of(()), totals)
    key = keys.ledger(envelope.app, stamp.ms // 60_000, writer, sequence)
    return key, {commit_records.COLUMN: commit_records.encode(commit, blocks.LEDGER, outcome)}


def _split_by_stamps(envelopes: Envelopes) -> Iterator[Envelopes]:
    """Yield the messages of each part: all, unless they were accepted ``BATCH_SPAN_MS`` apart (PROTOCOL 24).

    After an outage a batch has messages of hours ago and of now. The watermark keeper, and readers of an hour's
    balance, look for its rows from a little before its time on, and a row is keyed by the oldest message of its part.
    """
    if int(envelopes.ms.max()) - int(envelopes.ms.min()) < limits.BATCH_SPAN_MS:
        yield envelopes
        return
    spans = envelopes.ms // limits.BATCH_SPAN_MS
    for span in np.unique(spans).tolist():
        yield envelopes.select_messages(spans == span)


def _split_by_hours(envelopes: Envelopes) -> Iterator[Envelopes]:
    """Yield the messages of each part: all, unless they touch more than ``BATCH_HOURS_MAX`` hours together."""
    if int(envelopes.ts.max()) - int(envelopes.ts.min()) < limits.BATCH_HOURS_MAX * limits.HOUR_MS:
        yield envelopes
        return
    first, hours = 0, set[int]()
    pieces = np.split(hour_of(envelopes.ts), np.cumsum(envelopes.samples)[:-1])
    numbers = np.arange(len(envelopes))
    for number, piece in enumerate(pieces):
        touched = set(np.unique(piece).tolist())
        if number > first and len(hours | touched) > limits.BATCH_HOURS_MAX:
            yield envelopes.select_messages((numbers >= first) & (numbers < number))
            first, hours = number, set()
        hours |= touched
    yield envelopes.select_messages(numbers >= first)
