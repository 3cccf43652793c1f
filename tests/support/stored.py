"""What stands in a store: read the way queries read it, or as bare commit records."""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from spm.clock import SystemClock
from spm.query.reader import AppStorage
from spm.query.request.batches import Matcher
from spm.query.view.decoded_rows import PageCache
from spm.store import keys
from spm.store.backends.base import Backend
from spm.store.keys import PlacementTable
from spm.store.ledger import commit_records
from spm.store.ledger.commit_records import Commit
from spm.wire import Envelope, parse_canonical

Sample = tuple[str, int, bytes]  # series as text, time, bits of the value


def stamps(backend: Backend, app: int = 1) -> Counter[tuple[int, int, int]]:
    """How often each stamp stands in a commit record, per unit of its batch."""
    counts: Counter[tuple[int, int, int]] = Counter()
    for cell in commit_records.scan(backend, app, list(PlacementTable().all_shards(app))):
        m = commit_records.decode(cell.cell).messages
        counts.update(zip(m.ms.tolist(), m.process.tolist(), m.sequence.tolist(), strict=True))
    return counts


Copies = dict[bytes, dict[tuple[int, int, int], int]]  # message id → stamp → samples of its fullest batch


def copies(backend: Backend, app: int = 1) -> Copies:
    """Under which stamps each message stands in commit records or, once a run took it, in the account."""
    by_batch: dict[tuple[int, bytes, tuple[int, int, int]], dict[bytes, int]] = {}
    for where, batch, commit in _commits(backend, app):
        m, ids = commit.messages, commit.message_ids.tobytes()
        columns = (m.ms.tolist(), m.process.tolist(), m.sequence.tolist(), commit.samples.tolist())
        for i, (ms, process, sequence, count) in enumerate(zip(*columns, strict=True)):
            by_batch.setdefault((batch, ids[16 * i : 16 * i + 16], (ms, process, sequence)), {})[where] = count
    stamps_of: Copies = {}
    for (_, name, stamp), counts in by_batch.items():
        known = stamps_of.setdefault(name, {})
        known[stamp] = max(known.get(stamp, 0), sum(counts.values()))
    return stamps_of


def _commits(backend: Backend, app: int) -> Iterator[tuple[bytes, int, Commit]]:
    """(block, batch, what it commits): a block that a run has just accounted for stands in both places, and is one."""
    for listed in commit_records.scan(backend, app, list(PlacementTable().all_shards(app))):
        where = commit_records.ledger_key(listed.key.log(listed.hour))
        yield where, listed.key.batch, commit_records.decode(listed.cell)
    for key, cells in backend.scan("ledger", *keys.ledger_range(app)):
        commit, outcome, batch = commit_records.decode_ledger_row(cells[commit_records.COLUMN])
        if outcome == commit_records.STORED:
            yield key, batch, commit


def reader(backend: Backend, app: int = 1) -> AppStorage:
    """A query's view of an app."""
    return AppStorage(backend, app, placement=PlacementTable(), clock=SystemClock(), cache=PageCache())


def samples(
    backend: Backend, start_ms: int, end_ms: int, *, app: int = 1, storage: AppStorage | None = None
) -> Counter[Sample]:
    """Every sample that a query of all series between two times answers, as a multiset."""
    storage = storage or reader(backend, app)
    batch = storage.select([Matcher("__name__", "=~", ".+")], start_ms, end_ms)
    counts: Counter[Sample] = Counter()
    for i, labels in enumerate(batch.labels):
        part = slice(int(batch.offsets[i]), int(batch.offsets[i + 1]))
        counts.update(_words(_name(labels), batch.ts[part], batch.values[part]))
    return counts


def sent(envelopes: list[Envelope]) -> Counter[Sample]:
    """The samples of these messages, as a multiset."""
    counts: Counter[Sample] = Counter()
    for e in envelopes:
        for i in range(len(e.series)):
            own = e.series_index == i
            counts.update(_words(_canonical_name(e.series.canonical(i)), e.ts[own], e.values[own]))
    return counts


def _words(name: str, ts: np.ndarray, values: np.ndarray) -> list[Sample]:
    return [(name, int(t), v.tobytes()) for t, v in zip(ts, values, strict=True)]


def _name(labels: dict[str, str]) -> str:
    return series_name(labels)


def series_name(labels: dict[str, str]) -> str:
    """A series as text, with ``__name__`` among its labels."""
    return repr(sorted(labels.items()))


def _canonical_name(form: bytes) -> str:
    metric, labels = parse_canonical(form)
    return _name({"__name__": metric, **labels})
