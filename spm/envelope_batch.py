"""Many messages as one set of columns, for writers.

Enter by ``Envelopes.read``, which decodes the bodies of a batch by operations on columns and a few slices per message;
``Envelope.from_bytes`` for each of them costs ten times as much. When a body is damaged, ``read`` only reports that the
batch is; ``Envelope.from_bytes`` says which body it is and why. ``count_samples`` decodes only the head of a body.
"""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from spm.arrays import BOOL, F64, I32, I64, U8
from spm.errors import CorruptBlock
from spm.limits import TIME_MAX_MS
from spm.wire import ENVELOPE_VERSION, FIXED, HEAD, MAGIC, Envelope, SeriesTable, Stamp, concatenate

_T = TypeVar("_T", bound=np.generic)

# The head of an envelope and the fixed part of its body, as one row of an array.
_HEADS = np.dtype(
    [
        ("magic", "S4"),
        ("version", "u1"),
        ("crc", ">u4"),
        ("app", ">u4"),
        ("ms", ">u8"),
        ("process", ">u4"),
        ("sequence", ">u2"),
        ("rejected", ">u4"),
        ("id", "V16"),
        ("series", ">u4"),
        ("samples", ">u4"),
        ("text", ">u4"),
        ("source", "u1"),
    ]
)
assert _HEADS.itemsize == HEAD.size + FIXED.size, "BUG: two definitions of an envelope's head differ"


def count_samples(raw: bytes) -> int:
    """Count the samples of a body of ``Envelope.to_bytes`` by its head; raise ``CorruptBlock``."""
    if len(raw) < _HEADS.itemsize or raw[:4] != MAGIC or raw[4] != ENVELOPE_VERSION:
        Envelope.from_bytes(raw)  # raises the error
    return int.from_bytes(raw[_SAMPLES_AT : _SAMPLES_AT + 4], "big")


_SAMPLES_AT = HEAD.size + FIXED.size - 9  # before: text u32 and source u8


@dataclass(frozen=True, slots=True)
class Envelopes:
    """M messages as columns; in ``series_index``, ``ts`` and ``values`` each message's samples are neighbours.

    ``app`` to ``rejected`` i64[M]; ``source`` i32[M] into ``sources``; ``message_ids`` u8[16 × M]; ``samples`` i64[M]:
    the number of samples of each. ``series`` concatenates the tables of all: those of message m are
    ``table_starts[m] : table_ends[m]``. Messages with equal bytes of series share one table.
    """

    app: I64
    ms: I64
    process: I64
    sequence: I64
    rejected: I64
    source: I32
    sources: tuple[str, ...]
    message_ids: U8
    series: SeriesTable
    table_starts: I64
    table_ends: I64
    samples: I64
    series_index: I32
    ts: I64
    values: F64

    def __len__(self) -> int:
        return len(self.app)

    def __getitem__(self, number: int) -> Envelope:
        """One message as an envelope."""
        first, last = int(self.table_starts[number]), int(self.table_ends[number])
        stop = int(self.samples[: number + 1].sum())
        rows = slice(stop - int(self.samples[number]), stop)
        stamp = Stamp(int(self.ms[number]), int(self.process[number]), int(self.sequence[number]))
        return Envelope(
            int(self.app[number]),
            self.sources[self.source[number]],
            stamp,
            self.message_ids[16 * number : 16 * number + 16].tobytes(),
            self.series.rows(slice(first, last)),
            self.series_index[rows] - np.int32(first),
            self.ts[rows],
            self.values[rows],
            int(self.rejected[number]),
        )

    def __iter__(self) -> Iterator[Envelope]:
        return map(self.__getitem__, range(len(self)))

    def halves(self) -> "tuple[Envelopes, Envelopes]":
        """Split the messages into the first half and the second."""
        first = np.arange(len(self)) < len(self) // 2
        return self.select_messages(first), self.select_messages(~first)

    @property
    def message(self) -> I32:
        """The number of the message of each sample."""
        return np.repeat(np.arange(len(self), dtype=np.int32), self.samples)

    def select_samples(self, rows: BOOL) -> "Envelopes":
        """Reduce to these samples of all messages, and to the series that they name."""
        used = np.zeros(len(self.series), np.bool_)
        used[self.series_index[rows]] = True
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(used)])
        return replace(
            self,
            series=self.series.rows(used),
            table_starts=before[self.table_starts],
            table_ends=before[self.table_ends],
            samples=np.bincount(self.message[rows], minlength=len(self)),
            series_index=before[self.series_index[rows]].astype(np.int32),
            ts=self.ts[rows],
            values=self.values[rows],
        )

    def select_messages(self, messages: BOOL) -> "Envelopes":
        """Reduce to these messages, in their order; all series stay."""
        if bool(messages.all()):
            return self
        rows = np.repeat(messages, self.samples)
        return replace(
            self,
            app=self.app[messages],
            ms=self.ms[messages],
            process=self.process[messages],
            sequence=self.sequence[messages],
            rejected=self.rejected[messages],
            source=self.source[messages],
            message_ids=self.message_ids.reshape(-1, 16)[messages].ravel(),
            table_starts=self.table_starts[messages],
            table_ends=self.table_ends[messages],
            samples=self.samples[messages],
            series_index=self.series_index[rows],
            ts=self.ts[rows],
            values=self.values[rows],
        )

    @classmethod
    def of(cls, envelopes: Sequence[Envelope]) -> "Envelopes":
        """Convert envelopes to columns, in their order."""
        sizes = np.array([len(e.series) for e in envelopes], np.int64)
        ends = np.cumsum(sizes)
        starts = ends - sizes
        samples = np.array([len(e) for e in envelopes], np.int64)
        index = concatenate([e.series_index for e in envelopes], np.int32)
        source, sources = _number_names([e.source for e in envelopes])
        return cls(
            app=np.array([e.app for e in envelopes], np.int64),
            ms=np.array([e.stamp.ms for e in envelopes], np.int64),
            process=np.array([e.stamp.process for e in envelopes], np.int64),
            sequence=np.array([e.stamp.sequence for e in envelopes], np.int64),
            rejected=np.array([e.rejected for e in envelopes], np.int64),
            source=source,
            sources=sources,
            message_ids=np.frombuffer(b"".join(e.message_id for e in envelopes), np.uint8).copy(),
            series=SeriesTable.concatenate([e.series for e in envelopes]),
            table_starts=starts,
            table_ends=ends,
            samples=samples,
            series_index=index + np.repeat(starts, samples).astype(np.int32),
            ts=concatenate([e.ts for e in envelopes], np.int64),
            values=concatenate([e.values for e in envelopes], np.float64),
        )

    @classmethod
    def read(cls, bodies: Sequence[bytes]) -> "Envelopes":
        """Decode bodies as ``Envelope.from_bytes`` does; raise ``CorruptBlock`` when any of them is damaged.

        1. Decode all heads at once; check the length and the checksum of each body.
        2. Concatenate the parts of the bodies column by column, with one table for equal bytes of series.
        3. Check that every sample names a series of its own message, and that texts have the right length.
        """
        if not bodies:
            return cls.of([])
        if min(map(len, bodies)) < _HEADS.itemsize:
            raise CorruptBlock("not an envelope", got="a body shorter than a head")
        heads = np.frombuffer(b"".join([raw[: _HEADS.itemsize] for raw in bodies]), _HEADS)
        parts = _parts_of(bodies, heads)
        tables, number = _distinct_tables(bodies, parts)
        starts, ends, series = _tables(tables, heads["series"].astype(np.int64), number)
        samples = heads["samples"].astype(np.int64)
        index = _column(bodies, parts[2], parts[3], np.int32)
        if len(index) and not bool(((index >= 0) & (index < np.repeat(ends - starts, samples))).all()):
            raise CorruptBlock("an envelope names a series it does not hold")
        source, sources = _number_names(
            [raw[_HEADS.itemsize : at].decode("utf-8", "replace") for raw, at in zip(bodies, parts[0], strict=True)]
        )
        return cls(
            **{name: heads[name].astype(np.int64) for name in ("app", "ms", "process", "sequence", "rejected")},
            source=source,
            sources=sources,
            message_ids=np.frombuffer(heads["id"].tobytes(), np.uint8).copy(),
            series=series,
            table_starts=starts,
            table_ends=ends,
            samples=samples,
            series_index=index + np.repeat(starts, samples).astype(np.int32),
            ts=_column(bodies, parts[3], parts[4], np.int64),
            values=_column(bodies, parts[4], parts[5], np.float64),
        )


_Cuts = list[int]


def _parts_of(bodies: Sequence[bytes], heads: npt.NDArray[np.void]) -> tuple[_Cuts, ...]:
    """The offsets in each body of: its series, their text, series index, ts, values; and its end."""
    sizes = [heads[name].astype(np.int64) for name in ("source", "series", "text", "samples")]
    source, series, text, samples = sizes
    cuts = np.cumsum([_HEADS.itemsize + source, 20 * series, text, 4 * samples, 8 * samples, 8 * samples], axis=0)
    is_valid = (heads["magic"] == MAGIC) & (heads["version"] == ENVELOPE_VERSION)
    is_valid &= heads["ms"] <= np.uint64(TIME_MAX_MS)
    is_valid &= cuts[-1] == np.fromiter(map(len, bodies), np.int64, len(bodies))
    sums = (zlib.crc32(memoryview(raw)[HEAD.size :]) for raw in bodies)
    is_valid &= heads["crc"] == np.fromiter(sums, np.int64, len(bodies))
    if not bool(is_valid.all()):
        raise CorruptBlock("not an envelope, or a damaged one", got=f"{int((~is_valid).sum())} of {len(bodies)}")
    return tuple(cut.tolist() for cut in cuts)


def _column(bodies: Sequence[bytes], starts: _Cuts, ends: _Cuts, dtype: type[_T]) -> npt.NDArray[_T]:
    """Concatenate one column of all bodies; a copy, since kernels are compiled for writable arrays."""
    joined = b"".join([raw[i:j] for raw, i, j in zip(bodies, starts, ends, strict=True)])
    return np.frombuffer(joined, np.dtype(dtype).newbyteorder("<")).astype(dtype)


def _distinct_tables(
    bodies: Sequence[bytes], parts: tuple[_Cuts, ...]
) -> tuple[dict[tuple[int, bytes], int], list[int]]:
    """Number the distinct tables of series, as (bytes of text, bytes) → number; return them and each body's number."""
    tables: dict[tuple[int, bytes], int] = {}
    cut = zip(bodies, parts[0], parts[1], parts[2], strict=True)
    number = [tables.setdefault((end - text, raw[start:end]), len(tables)) for raw, start, text, end in cut]
    return tables, number


def _tables(tables: dict[tuple[int, bytes], int], sizes: I64, number: list[int]) -> tuple[I64, I64, SeriesTable]:
    """(first and last + 1 entry of each message's table, all tables concatenated)."""
    raws = [raw for _, raw in tables]
    texts = [len(raw) - text for text, raw in tables]
    entries = [at // 20 for at in texts]
    ends = np.cumsum(np.array(entries, np.int64))
    cuts = [[size * n for n in entries] for size in (0, 8, 16, 20)]
    ids, metrics = _column(raws, cuts[0], cuts[1], np.uint64), _column(raws, cuts[1], cuts[2], np.uint64)
    lengths = _column(raws, cuts[2], cuts[3], np.uint32)
    form_ends = np.cumsum(lengths, dtype=np.int64)
    text_ends = np.cumsum(np.array([text for text, _ in tables], np.int64))
    series_ends = np.concatenate([np.zeros(1, np.int64), form_ends])[ends]
    if not np.array_equal(series_ends, text_ends):
        raise CorruptBlock("the series of an envelope do not fill its text")
    text = _column(raws, texts, [len(raw) for raw in raws], np.uint8)
    table = SeriesTable(ids, metrics, text, form_ends - lengths, form_ends)
    which = np.array(number, np.int64)
    return ends[which] - sizes, ends[which], table


def _number_names(names: Sequence[str]) -> tuple[I32, tuple[str, ...]]:
    """Number names: the number of each among the distinct ones, and these."""
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(name, len(numbers)) for name in names], np.int32), tuple(numbers)
