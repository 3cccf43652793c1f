"""Short ways to say what a test needs: samples, envelopes, blocks, a store, and the plain answer to compare with.

A sample is (series, ts, value); a series is a small number that stands for a metric and one label. ``plain`` is
PROTOCOL 2 in a few lines of Python: of all versions of a (series, ts) the one with the greatest stamp, within a message
the last; a stale marker only where there is nothing else.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from ingest.writer import Writer
from spm.limits import HOUR_MS
from spm.store.backends.base import Backend
from spm.store.backends.memory import MemoryBackend
from spm.store.encoding.blocks import LogBlock, Messages
from spm.store.keys import PlacementTable
from spm.store.versions.merge import Piece
from spm.wire import STALE_BITS, Envelope, SeriesTable, Stamp, canonical

APP = 7
HOUR = 472_000
START = HOUR * HOUR_MS  # the hour's samples are later than this

Sample = tuple[int, int, float]  # series, ts, value
Version = tuple[int, int, int, tuple[int, int, int, str]]  # series, ts, bits, (ms, process, sequence, source)


def form(series: int) -> bytes:
    """The canonical form of series number ``series``; three metrics take turns."""
    return canonical(f"m{series % 3}", {"host": f"h{series}"})


def bits(value: float) -> int:
    """The 64 bits of a float."""
    return int(np.float64(value).view(np.int64))


def number(pattern: int) -> float:
    """The float of 64 bits."""
    return float(np.uint64(pattern).view(np.float64))


def envelope(
    samples: Sequence[Sample],
    *,
    ms: int = 1_699_300_000_000,
    sequence: int = 0,
    process: int = 1,
    source: str = "host",
    app: int = APP,
    rejected: int = 0,
    message_id: bytes = b"m" * 16,
) -> Envelope:
    """One message with these samples in this order."""
    named = sorted({s for s, _, _ in samples})
    return Envelope(
        app=app,
        source=source,
        stamp=Stamp(ms, process, sequence),
        message_id=message_id,
        series=SeriesTable.from_canonical([form(s) for s in named]),
        series_index=np.array([named.index(s) for s, _, _ in samples], np.int32),
        ts=np.array([t for _, t, _ in samples], np.int64),
        values=np.array([v for _, _, v in samples], np.float64),
        rejected=rejected,
    )


def block(samples: Sequence[Sample], *, stamps: Sequence[Stamp] = (Stamp(1, 1, 0),), source: str = "host") -> LogBlock:
    """A block whose rows belong to the stamps in turn."""
    ordered = sorted(enumerate(samples), key=lambda item: item[1][0])
    series = sorted({s for s, _, _ in samples})
    return LogBlock(
        messages(stamps, source),
        np.array(series, np.uint64),
        np.array([s % 3 for s in series], np.uint64),
        np.array([sum(s == x for x, _, _ in samples) for s in series], np.int32),
        np.array([i % len(stamps) for i, _ in ordered], np.int32),
        np.array([t for _, (_, t, _) in ordered], np.int64),
        np.array([v for _, (_, _, v) in ordered], np.float64),
    )


def messages(stamps: Sequence[Stamp], source: str = "host") -> Messages:
    """A message table."""
    ms, process, sequence = (np.array([getattr(s, f) for s in stamps], np.int64) for f in ("ms", "process", "sequence"))
    return Messages(ms, process, sequence, np.zeros(len(stamps), np.int32), (source,))


def piece(versions: Sequence[Version]) -> Piece:
    """Versions as they arrive, as one piece (not merged)."""
    stamps = sorted({v[3] for v in versions}, key=repr)  # any order will do
    sources = sorted({s[3] for s in stamps}, reverse=True)
    series = sorted({v[0] for v in versions}, reverse=True)
    rows = sorted(versions, key=lambda v: -v[0])
    return Piece(
        Messages(
            np.array([s[0] for s in stamps], np.int64),
            np.array([s[1] for s in stamps], np.int64),
            np.array([s[2] for s in stamps], np.int64),
            np.array([sources.index(s[3]) for s in stamps], np.int32),
            tuple(sources),
        ),
        np.array(series, np.uint64),
        np.array([s % 3 for s in series], np.uint64),
        np.array([sum(v[0] == s for v in versions) for s in series], np.int32),
        np.array([stamps.index(v[3]) for v in rows], np.int32),
        np.array([v[1] for v in rows], np.int64),
        np.array([v[2] for v in rows], np.int64).view(np.float64),
    )


def versions_of(piece_: Piece) -> list[Version]:
    """A piece's versions in its order."""
    owner = np.repeat(piece_.series, piece_.counts)
    m = piece_.messages
    return [
        (int(s), int(t), int(b), (int(m.ms[i]), int(m.process[i]), int(m.sequence[i]), m.sources[m.source[i]]))
        for s, t, b, i in zip(owner, piece_.ts, piece_.values.view(np.int64), piece_.message, strict=True)
    ]


def plain(envelopes: Iterable[Envelope]) -> dict[tuple[bytes, int], int]:
    """(canonical form, ts) -> bits of the winner (PROTOCOL 2); a stale marker never is, where there is a value."""
    won: dict[tuple[bytes, int], tuple[tuple[bool, Stamp, str, int], int]] = {}
    for e in envelopes:
        for i in range(len(e)):
            at = e.series.canonical(int(e.series_index[i])), int(e.ts[i])
            here = bits(e.values[i])
            rank = (here != STALE_BITS, e.stamp, e.source, i)
            if at not in won or won[at][0] <= rank:
                won[at] = rank, here
    return {at: value for at, (_, value) in won.items()}


def stored(*envelopes: Envelope, backend: Backend | None = None, spread: int = 1) -> Backend:
    """A store that holds these messages, one batch each."""
    backend = backend or MemoryBackend()
    writer = Writer(backend, PlacementTable.single(spread=spread))
    for e in envelopes:
        writer.write([e])
    return backend
