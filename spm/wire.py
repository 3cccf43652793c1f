"""The canonical message of one push, and the canonical form of a series.

Enter by ``Envelope``: every protocol's message is converted to it, and RabbitMQ carries its bytes. Columns are numpy
arrays; one entry of ``series_index``, ``ts`` and ``values`` is a sample. Many envelopes as one set of columns:
``spm.envelope_batch``. This module never uses a store, a clock or a network.

Canonical form of a series (bytes, UTF-8 text inside):
    u16 length ‖ metric ‖ for each label, sorted by name: u16 length ‖ name ‖ u16 length ‖ value
The lengths make the forms of different label sets differ.
"""

import hashlib
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from spm.arrays import BOOL, F64, I32, I64, U8, U64
from spm.errors import BadMessage, CorruptBlock
from spm.fast_dataclass import dataclass
from spm.limits import HOUR_MS, TIME_MAX_MS

_T = TypeVar("_T", bound=np.generic)
STALE_BITS = 0x7FF0000000000002  # Prometheus' marker "this series has ended", one of the NaNs
ENVELOPE_VERSION = 1
HEAD = struct.Struct(">4sBI")  # magic, version, CRC-32 of all that follows
MAGIC = b"SPMe"


def canonical(metric: str, labels: Mapping[str, str]) -> bytes:
    """Encode a series; raise ``BadMessage`` for a name or value that is no UTF-8 or over 65,535 bytes."""
    parts = [metric]
    for name in sorted(labels):  # by code points, which is the order of their UTF-8 bytes
        parts += [name, labels[name]]
    try:
        return b"".join([prefixed(part.encode()) for part in parts])
    except UnicodeEncodeError as error:
        raise BadMessage("a name or label value is no text", got=ascii(error.object)[:80], wanted="UTF-8") from error


def prefixed(raw: bytes) -> bytes:
    """Encode one text of a canonical form, in UTF-8; raise ``BadMessage`` for one over 65,535 bytes."""
    if len(raw) > 0xFFFF:
        raise BadMessage("a name or label value is too long", got=f"{len(raw)} bytes", wanted="at most 65535")
    return len(raw).to_bytes(2, "big") + raw


def parse_canonical(form: bytes) -> tuple[str, dict[str, str]]:
    """Decode a canonical form to metric and labels; raise ``CorruptBlock``."""
    parts: list[str] = []
    at = 0
    while at < len(form):
        size = int.from_bytes(form[at : at + 2], "big")
        if at + 2 + size > len(form):
            raise CorruptBlock("a series' canonical form ends early", got=form[:80])
        parts.append(form[at + 2 : at + 2 + size].decode("utf-8", "replace"))
        at += 2 + size
    if len(parts) % 2 == 0:
        raise CorruptBlock("a series' canonical form has a label without value", got=form[:80])
    return parts[0], dict(zip(parts[1::2], parts[2::2], strict=True))


def _hash64(raw: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(raw, digest_size=8).digest(), "big")


def series_id(form: bytes) -> int:
    """The 64-bit id of a series: BLAKE2b-64 of its canonical form."""
    return _hash64(form)


def metric_id(metric: bytes) -> int:
    """The 64-bit id of a metric name: BLAKE2b-64 of its UTF-8 text."""
    return _hash64(metric)


def metric_of(form: bytes) -> bytes:
    """The metric's name in a canonical form."""
    return form[2 : 2 + int.from_bytes(form[:2], "big")]


def hour_of(ts: I64) -> I64:
    """The hour of each time in ms; left-open: hour h holds h·3,600,000 < ts ≤ (h+1)·3,600,000."""
    return (ts - 1) // HOUR_MS


@dataclass(frozen=True, slots=True, order=True)
class Stamp:
    """The id of one acceptance: unique, sortable, given once (milliseconds, process number, sequence)."""

    ms: int
    process: int
    sequence: int


def concatenate(columns: Sequence[npt.NDArray[_T]], dtype: type[_T]) -> npt.NDArray[_T]:
    """Concatenate columns; there may be none."""
    return np.concatenate(columns) if columns else np.empty(0, dtype)


@dataclass(frozen=True, slots=True)
class SeriesTable:
    """The distinct series of a message: ids and metric ids (u64[S]), and the place of each form in ``text``."""

    ids: U64
    metrics: U64
    text: U8
    starts: I64
    ends: I64

    def __len__(self) -> int:
        return len(self.ids)

    def forms(self) -> bytes:
        """All canonical forms, concatenated."""
        if len(self) == 0 or bool((self.starts[1:] == self.ends[:-1]).all()):
            return self.text[self.starts[0] : self.ends[-1]].tobytes() if len(self) else b""
        lengths = self.ends - self.starts
        before = np.cumsum(lengths) - lengths
        return self.text[np.repeat(self.starts - before, lengths) + np.arange(int(lengths.sum()))].tobytes()

    def canonical(self, index: int) -> bytes:
        """The canonical form of series ``index``."""
        return self.text[self.starts[index] : self.ends[index]].tobytes()

    def canonicals(self) -> list[bytes]:
        """The canonical forms of all series."""
        text, ends = self.forms(), np.cumsum(self.ends - self.starts).tolist()
        return [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]

    def compact(self) -> "SeriesTable":
        """The table with a text that holds only its own forms."""
        lengths = self.ends - self.starts
        if int(lengths.sum()) == len(self.text):
            return self
        ends = np.cumsum(lengths)
        text = np.frombuffer(self.forms(), np.uint8).copy()
        return SeriesTable(self.ids, self.metrics, text, ends - lengths, ends)

    def rows(self, rows: I64 | BOOL | slice) -> "SeriesTable":
        """The table of some series; the text stays as it is."""
        return SeriesTable(self.ids[rows], self.metrics[rows], self.text, self.starts[rows], self.ends[rows])

    @classmethod
    def concatenate(cls, tables: Sequence["SeriesTable"]) -> "SeriesTable":
        """Concatenate tables. A text that all share is not copied: that of a cache is as large as the cache."""
        if len({id(t.text) for t in tables}) != 1:
            tables = [t.compact() for t in tables]
            lengths = np.array([len(t.text) for t in tables], np.int64)
            text, shifts = concatenate([t.text for t in tables], np.uint8), np.cumsum(lengths) - lengths
            starts = [t.starts + shift for t, shift in zip(tables, shifts, strict=True)]
            ends = [t.ends + shift for t, shift in zip(tables, shifts, strict=True)]
        else:
            text, starts, ends = tables[0].text, [t.starts for t in tables], [t.ends for t in tables]
        return cls(
            ids=concatenate([t.ids for t in tables], np.uint64),
            metrics=concatenate([t.metrics for t in tables], np.uint64),
            text=text,
            starts=concatenate(starts, np.int64),
            ends=concatenate(ends, np.int64),
        )

    @classmethod
    def from_canonical(cls, forms: Sequence[bytes]) -> "SeriesTable":
        """Build the table of these canonical forms, in this order, and compute their ids."""
        lengths = np.fromiter(map(len, forms), np.int64, len(forms))
        ends = np.cumsum(lengths)
        return cls(
            ids=np.array([series_id(f) for f in forms], np.uint64),
            metrics=np.array([metric_id(metric_of(f)) for f in forms], np.uint64),
            text=np.frombuffer(b"".join(forms), np.uint8).copy(),
            starts=ends - lengths,
            ends=ends,
        )


@dataclass(frozen=True, slots=True)
class Rejection:
    """One line or item that was rejected: its number (from 1), the reason, and its first characters."""

    line: int
    reason: str
    example: str


@dataclass(frozen=True, slots=True)
class Metadata:
    """A sender's description of a metric: its type (as Prometheus names it), help and unit; each may be empty."""

    metric: str
    type: str
    help: str
    unit: str


@dataclass(frozen=True, slots=True)
class Exemplar:
    """An example of what a series counts: a value with labels of its own, mostly a trace's id. It is no sample."""

    series: bytes  # its canonical form
    ts: int
    value: float
    labels: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Parsed:
    """The result of a protocol's parser. ``timeless`` counts samples that had no time of their own.

    ``places`` returns, for some samples (numbered from 0, ascending), the line or item (from 1) of the body that each
    came from; it may parse the body again. It is for code that rejects samples after the parser. ``histograms`` counts
    native ones, and ``histogram_samples`` the samples that they have become. An exemplar's series may have no sample.
    """

    series: SeriesTable
    series_index: I32
    ts: I64
    values: F64
    timeless: int = 0
    rejections: tuple[Rejection, ...] = ()
    rejected: int = 0
    metadata: tuple[Metadata, ...] = ()
    histograms: int = 0
    histogram_samples: int = 0
    exemplars: tuple[Exemplar, ...] = ()
    places: Callable[[Sequence[int]], list[int]] | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Envelope:
    """One accepted message of one source of one app, with its stamp. Columns have one entry per sample."""

    app: int
    source: str
    stamp: Stamp
    message_id: bytes
    series: SeriesTable
    series_index: I32
    ts: I64
    values: F64
    rejected: int = 0

    def __post_init__(self) -> None:
        assert len(self.message_id) == 16, "BUG: a message id has 16 bytes"
        assert len(self.series_index) == len(self.ts) == len(self.values), "BUG: columns of a message differ in length"

    def __len__(self) -> int:
        return len(self.ts)

    def to_bytes(self) -> bytes:
        """Encode the versioned, checksummed body for the queue (layout: ``_pack``)."""
        body = _pack(self)
        return HEAD.pack(MAGIC, ENVELOPE_VERSION, zlib.crc32(body)) + body

    @classmethod
    def from_bytes(cls, raw: bytes) -> "Envelope":
        """Decode such a body; raise ``CorruptBlock`` for anything else, so that no wrong number is ever returned."""
        if len(raw) < HEAD.size or raw[:4] != MAGIC:
            raise CorruptBlock("not an envelope", got=raw[:16], wanted=MAGIC)
        _, version, crc = HEAD.unpack_from(raw)
        if version != ENVELOPE_VERSION:
            raise CorruptBlock("unknown envelope version", got=version, wanted=ENVELOPE_VERSION)
        body = raw[HEAD.size :]
        if zlib.crc32(body) != crc:
            raise CorruptBlock("envelope fails its checksum", got=zlib.crc32(body), wanted=crc)
        return _unpack(body)


# Body of an envelope, big-endian head, little-endian columns (numpy's own order on every machine we run on):
#   app u32 | ms u64 | process u32 | sequence u16 | rejected u32 | message id 16 | S u32 | N u32 | text u32
#   | source u8 + bytes | ids u64[S] | metrics u64[S] | text lengths u32[S] | text
#   | series index i32[N] | ts i64[N] | values f64[N]
FIXED = struct.Struct(">IQIHI16sIIIB")


def _pack(e: Envelope) -> bytes:
    source = e.source.encode()
    lengths = (e.series.ends - e.series.starts).astype("<u4")
    text = e.series.forms()
    head = FIXED.pack(
        e.app,
        e.stamp.ms,
        e.stamp.process,
        e.stamp.sequence,
        e.rejected,
        e.message_id,
        len(e.series),
        len(e),
        len(text),
        len(source),
    )
    columns = (e.series.ids.astype("<u8"), e.series.metrics.astype("<u8"), lengths)
    rows = (e.series_index.astype("<i4"), e.ts.astype("<i8"), e.values.astype("<f8"))
    return b"".join([head, source, *(c.tobytes() for c in columns), text, *(r.tobytes() for r in rows)])


def _unpack(body: bytes) -> Envelope:
    if len(body) < FIXED.size:
        raise CorruptBlock("envelope ends before its head does", got=len(body), wanted=FIXED.size)
    app, ms, process, sequence, rejected, message_id, series, count, text, source = FIXED.unpack_from(body)
    wanted = FIXED.size + source + series * 20 + text + count * 20
    if len(body) != wanted:
        raise CorruptBlock("envelope has a wrong length", got=len(body), wanted=wanted)
    if ms > TIME_MAX_MS:
        raise CorruptBlock("envelope's stamp is no time", got=ms, wanted=f"at most {TIME_MAX_MS}")
    columns = _Columns(body, FIXED.size + source)
    ids, metrics = columns.take(np.uint64, series), columns.take(np.uint64, series)
    ends = np.cumsum(columns.take(np.uint32, series), dtype=np.int64)
    forms = columns.take(np.uint8, text)
    index, ts, values = columns.take(np.int32, count), columns.take(np.int64, count), columns.take(np.float64, count)
    if (int(ends[-1]) if series else 0) != text:
        raise CorruptBlock("envelope's series do not fill its text", got=int(ends[-1]) if series else 0, wanted=text)
    if count and not 0 <= int(index.min()) <= int(index.max()) < series:
        raise CorruptBlock("envelope names a series it does not hold", got=int(index.max()), wanted=f"< {series}")
    starts = np.concatenate([np.zeros(min(1, series), np.int64), ends[:-1]])
    name = body[FIXED.size : FIXED.size + source].decode("utf-8", "replace")
    table = SeriesTable(ids, metrics, forms, starts, ends)
    return Envelope(app, name, Stamp(ms, process, sequence), message_id, table, index, ts, values, rejected)


class _Columns:
    """Reads columns from a body, one after the other; copies, since kernels are compiled for writable arrays."""

    def __init__(self, body: bytes, at: int) -> None:
        self._body, self._at = body, at

    def take(self, dtype: type[_T], count: int) -> npt.NDArray[_T]:
        """Read the next ``count`` values."""
        column = np.frombuffer(self._body, np.dtype(dtype).newbyteorder("<"), count, self._at).astype(dtype)
        self._at += column.nbytes
        return column
