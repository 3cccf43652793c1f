"""What stands in a store: read the way queries read it, or as bare commit records."""

from collections import Counter

import numpy as np

from spm.clock import SystemClock
from spm.query.cache import PageCache
from spm.query.select import Matcher
from spm.query.storage import AppStorage
from spm.store import pending
from spm.store.backends.base import Backend
from spm.store.keys import Distribution
from spm.wire import Envelope, parse_canonical

Sample = tuple[str, int, bytes]  # series in words, time, bits of the value


def stamps(backend: Backend, app: int = 1) -> Counter[tuple[int, int, int]]:
    """How often each stamp stands in a commit record, per unit of its batch."""
    found: Counter[tuple[int, int, int]] = Counter()
    for cell in pending.scan(backend, app, list(Distribution().all(app))):
        m = pending.decode(cell.cell).messages
        found.update(zip(m.ms.tolist(), m.process.tolist(), m.sequence.tolist(), strict=True))
    return found


Copies = dict[bytes, dict[tuple[int, int, int], int]]  # message id → stamp → samples of its fullest batch


def copies(backend: Backend, app: int = 1) -> Copies:
    """Under which stamps each message stands in commit records, and with how many samples."""
    by_batch: Counter[tuple[int, bytes, tuple[int, int, int]]] = Counter()
    for listed in pending.scan(backend, app, list(Distribution().all(app))):
        commit = pending.decode(listed.cell)
        m, ids = commit.messages, commit.message_ids.tobytes()
        columns = (m.ms.tolist(), m.process.tolist(), m.sequence.tolist(), commit.samples.tolist())
        for i, (ms, process, sequence, count) in enumerate(zip(*columns, strict=True)):
            by_batch[listed.key.batch, ids[16 * i : 16 * i + 16], (ms, process, sequence)] += count
    found: Copies = {}
    for (_, name, stamp), count in by_batch.items():
        known = found.setdefault(name, {})
        known[stamp] = max(known.get(stamp, 0), count)
    return found


def samples(backend: Backend, start_ms: int, end_ms: int, *, app: int = 1) -> Counter[Sample]:
    """Every sample that a query of all series between two times answers, as a multiset."""
    storage = AppStorage(backend, app, distribution=Distribution(), clock=SystemClock(), cache=PageCache())
    batch = storage.select([Matcher("__name__", "=~", ".+")], start_ms, end_ms)
    found: Counter[Sample] = Counter()
    for i, labels in enumerate(batch.labels):
        part = slice(int(batch.offsets[i]), int(batch.offsets[i + 1]))
        found.update(_words(_name(labels), batch.ts[part], batch.values[part]))
    return found


def sent(envelopes: list[Envelope]) -> Counter[Sample]:
    """The samples of these messages, as a multiset."""
    found: Counter[Sample] = Counter()
    for e in envelopes:
        for i in range(len(e.series)):
            own = e.series_index == i
            found.update(_words(_canonical_name(e.series.canonical(i)), e.ts[own], e.values[own]))
    return found


def _words(name: str, ts: np.ndarray, values: np.ndarray) -> list[Sample]:
    return [(name, int(t), v.tobytes()) for t, v in zip(ts, values, strict=True)]


def _name(labels: dict[str, str]) -> str:
    return series_name(labels)


def series_name(labels: dict[str, str]) -> str:
    """A series in words, ``__name__`` among its labels."""
    return repr(sorted(labels.items()))


def _canonical_name(form: bytes) -> str:
    metric, labels = parse_canonical(form)
    return _name({"__name__": metric, **labels})
