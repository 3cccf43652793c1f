"""The content of a cell: a checksummed, versioned frame around columns or a small record.

Enter by ``LogBlock`` (a batch's part of a HourShard), ``TimelinesPage`` (of merged samples, with ``chunk_page``),
``encode_columns`` for plain named columns, ``encode_record`` for small records. Bytes that fail their checksum or shape
raise ``CorruptBlock`` and are never shown as numbers. ``READERS`` has a reader for every version that was ever written;
the greatest version of a kind is written. Drawings: FORMAT.md; golden bytes: tests/golden.
"""

import struct
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec
import numpy as np
import zstandard

from spm import limits
from spm.arrays import F64, I32, I64, U64
from spm.errors import CorruptBlock, LimitExceeded
from spm.store.encoding import codec, kernels
from spm.store.encoding.codec import Column

# kinds of frames: never renumbered
(
    LOG,
    CHUNK,
    TIMELINES,
    INPUTS,
    PENDING,
    MANIFEST,
    HOURS,
    LEDGER,
    MONTH,
    DEAD,
    RETRACTION,
    PLACEMENT,
    ANNOUNCED,
    WATERMARK,
    STAMPS,
    VECTOR,
    ROUND,
    FOLDED,
) = range(1, 19)
_NAMES = (
    *("log", "chunk", "timelines", "inputs", "pending", "manifest", "hours", "ledger", "month"),
    *("dead", "retraction", "distribution", "announced", "mark", "stamps", "vector", "round", "folded"),
)
RECORD_BYTES_MAX = 64_000_000  # of one unpacked record: a damaged size must not take the machine's memory

_HEAD = struct.Struct(">BBI")  # kind, version, CRC-32 of kind ‖ version ‖ payload
_TRIAL_MESSAGES = 4_096  # for so many messages of a page both forms of their stamps are tried
_ENCODED = list[tuple[str, int, str, int, int, bytes]]
_COLUMNS = msgspec.msgpack.Decoder(tuple[list[str], _ENCODED])
_NUMBERED = msgspec.msgpack.Decoder(tuple[list[str], list[tuple[int, int, int, int, bytes]]])
_PACK = msgspec.msgpack.Encoder()
# names of columns by number, for frames that hold these numbers; only ever added to
COLUMN_NAMES = (
    "ms",
    "process",
    "sequence",
    "source",
    "series_hash",
    "metric_hash",
    "metric",
    "counts",
    "message",
    "ts",
    "values",
    "samples",
    "id_hash",
    "range",
    "batch_hash",
    "bucket",
    "slot",
    "total",
    "epoch",
)
_NUMBER = {name: number for number, name in enumerate(COLUMN_NAMES)}
_KIND = {dtype: number for number, dtype in enumerate(codec.DTYPES)}
_KINDS = 16  # room for so many kinds of numbers
_FORMS = {form * _KINDS + kind: (form, dtype) for form in range(_KINDS) for kind, dtype in enumerate(codec.DTYPES)}
T = TypeVar("T")


def frame(kind: int, payload: bytes, version: int | None = None) -> bytes:
    """Frame a payload as kind ‖ version ‖ CRC-32 ‖ payload, by default in the version that is written now."""
    version = _NEWEST[kind] if version is None else version
    return _HEAD.pack(kind, version, zlib.crc32(payload, zlib.crc32(bytes((kind, version))))) + payload


def split_pages(raw: bytes) -> tuple[bytes, bytes]:
    """Return (the frame, the pages after it: none in versions without)."""
    if tuple(raw[:2]) not in _WITH_PAGES:
        return raw, b""
    end = _HEAD.size + 4 + int.from_bytes(raw[_HEAD.size : _HEAD.size + 4], "big")
    return raw[:end], raw[end:]


def unframe(kind: int, raw: bytes) -> tuple[int, bytes]:
    """Check a frame of this kind and return (version, payload); raise ``CorruptBlock``. Pages are not looked at."""
    raw, _ = split_pages(raw)
    if len(raw) < _HEAD.size:
        raise CorruptBlock("a block ends before its header does", got=f"{len(raw)} bytes", wanted=_HEAD.size)
    got, version, crc = _HEAD.unpack_from(raw)
    payload = raw[_HEAD.size :]
    if zlib.crc32(payload, zlib.crc32(raw[:2])) != crc:
        raise CorruptBlock("a block fails its checksum", got=f"{len(raw)} bytes", wanted=f"{crc:08x}")
    if got != kind:
        raise CorruptBlock("a block of another kind", got=_name(got), wanted=_name(kind))
    if (kind, version) not in READERS:
        known = " and ".join(map(str, versions_of(kind)))
        raise CorruptBlock(
            f"a block of {_name(kind)} of a version that this program does not read",
            got=version,
            wanted=known,
            remedy="A newer release wrote it: upgrade this one.",
        )
    return version, payload


def read(kind: int, raw: bytes) -> tuple[int, Any]:
    """Return (version, the decoded payload): columns and texts, or the MessagePack of a record."""
    version, payload = unframe(kind, raw)
    return version, READERS[kind, version](payload)


def versions_of(kind: int) -> list[int]:
    """The versions of a kind that are read, oldest first; the last one is written."""
    return sorted(version for k, version in READERS if k == kind)


def _name(kind: int) -> str:
    return f"kind {kind} ({_NAMES[kind - 1]})" if 0 < kind <= len(_NAMES) else f"kind {kind}"


def encode_columns(
    kind: int,
    columns: Mapping[str, Column | codec.Encoded],
    texts: list[str] | None = None,
    *,
    apart: Collection[str] = (),
    version: int | None = None,
) -> bytes:
    """Encode named columns and a list of texts as a frame, by default in the newest version.

    Columns named ``*_hash`` hold hashes and are stored raw. ``apart`` names columns whose neighbouring values may be
    unrelated. Columns that many frames share may be encoded once, by ``codec.encode``. What runs write is packed more
    densely than what an append has to wait for.
    """
    return frame(kind, pack_columns(kind, columns, texts, apart=apart), version)


def pack_columns(
    kind: int,
    columns: Mapping[str, Column | codec.Encoded],
    texts: list[str] | None = None,
    *,
    apart: Collection[str] = (),
) -> bytes:
    """Encode columns and texts as the payload of a frame."""
    packed: _ENCODED = []
    for name, c in columns.items():
        if not isinstance(c, tuple):
            c = codec.encode(c, random=name.endswith("_hash"), apart=name in apart, dense=kind in (CHUNK, HOURS))
        packed.append((name, *c))
    if READERS[kind, _NEWEST[kind]] is _numbered_columns:
        numbered = [(_NUMBER[name], form * _KINDS + _KIND[dtype], *rest) for name, form, dtype, *rest in packed]
        return _PACK.encode((texts or [], numbered))
    return _PACK.encode((texts or [], packed))


def pack_column(name: str, column: Column | codec.Encoded) -> msgspec.Raw:
    """Pack one column as frames with numbers of columns hold it, for ``join_columns``."""
    form, dtype, *rest = column if isinstance(column, tuple) else codec.encode(column, random=name.endswith("_hash"))
    return msgspec.Raw(_PACK.encode((_NUMBER[name], form * _KINDS + _KIND[dtype], *rest)))


def join_columns(kind: int, columns: Sequence[msgspec.Raw], texts: list[str]) -> bytes:
    """Make a frame of packed columns: the bytes of ``encode_columns``, where many frames share most columns."""
    assert READERS[kind, _NEWEST[kind]] is _numbered_columns, f"BUG: {_name(kind)} has names of columns"
    return frame(kind, _PACK.encode((texts, columns)))


def decode_columns(kind: int, raw: bytes) -> tuple[dict[str, Column], list[str]]:
    """Decode a frame to its (columns, texts)."""
    columns: tuple[dict[str, Column], list[str]] = read(kind, raw)[1]
    return columns


def packed_columns(kind: int, raw: bytes) -> tuple[list[str], dict[str, codec.Encoded]]:
    """Return (the texts of a frame, its columns still packed), for callers that need only some columns."""
    version, payload = unframe(kind, raw)
    try:
        if READERS[kind, version] is not _numbered_columns:
            texts, named = _COLUMNS.decode(payload)
            return texts, {name: (form, dtype, n, k, body) for name, form, dtype, n, k, body in named}
        texts, packed = _NUMBERED.decode(payload)
        return texts, {COLUMN_NAMES[name]: (*_FORMS[what], n, k, body) for name, what, n, k, body in packed}
    except (msgspec.MsgspecError, IndexError, KeyError) as error:
        raise CorruptBlock(f"a block's table of columns is damaged: {error}") from error


def decode_named(kind: int, raw: bytes, names: tuple[str, ...]) -> tuple[dict[str, Column], list[str]]:
    """Decode a frame that must have all of these columns; raise ``CorruptBlock`` if it lacks one."""
    columns, texts = decode_columns(kind, raw)
    missing = [name for name in names if name not in columns]
    if missing:
        raise CorruptBlock("a block lacks columns", got=sorted(columns), wanted=missing)
    return columns, texts


def encode_record(kind: int, record: Any, version: int | None = None) -> bytes:
    """Encode one small record as a frame (msgpack, zstd above 256 bytes), by default in the newest version.

    Raises ``LimitExceeded`` for a record that no reader would unpack: nobody could see any more what it names.
    """
    assert READERS[kind, _NEWEST[kind]] is _record, f"BUG: {_name(kind)} is written as columns"
    raw = _PACK.encode(record)
    if len(raw) > RECORD_BYTES_MAX:
        raise LimitExceeded(
            f"a record of {_name(kind)} is larger than any that can be read", got=len(raw), wanted=RECORD_BYTES_MAX
        )
    if len(raw) <= 256:
        return frame(kind, b"\0" + raw, version)
    return frame(kind, b"\1" + zstandard.ZstdCompressor(level=1).compress(raw), version)


def decode_record(kind: int, raw: bytes, form: type[T]) -> T:
    """Decode a record; raise ``CorruptBlock`` for bytes of another shape."""
    return as_record(read(kind, raw)[1], form)


def as_record(packed: bytes, form: type[T]) -> T:
    """Decode a record's MessagePack; raise ``CorruptBlock``."""
    try:
        return msgspec.msgpack.decode(packed, type=form)
    except msgspec.MsgspecError as error:
        raise CorruptBlock(f"a record is damaged: {error}") from error


# --- readers of every version that was ever written; the reader of an older version returns today's form --------------


def _columns(payload: bytes) -> tuple[dict[str, Column], list[str]]:
    try:
        texts, packed = _COLUMNS.decode(payload)
    except msgspec.MsgspecError as error:
        raise CorruptBlock(f"a block's table of columns is damaged: {error}") from error
    return {name: codec.decode((form, dtype, n, k, body)) for name, form, dtype, n, k, body in packed}, texts


def _columns_with_pages(payload: bytes) -> tuple[dict[str, Column], list[str]]:
    """Columns before pages; the payload begins with its length, by which the pages are found."""
    return _columns(payload[4:])


def _numbered_columns(payload: bytes) -> tuple[dict[str, Column], list[str]]:
    """Columns with numbers for names, forms and kinds: in blocks of few samples the names would outweigh the values."""
    try:
        texts, packed = _NUMBERED.decode(payload)
    except msgspec.MsgspecError as error:
        raise CorruptBlock(f"a block's table of columns is damaged: {error}") from error
    columns = {}
    for number, what, count, parameter, body in packed:
        form, kind = divmod(what, _KINDS)
        if not 0 <= number < len(COLUMN_NAMES) or kind >= len(codec.DTYPES):
            raise CorruptBlock("a column of an unknown name or kind", got=(number, what))
        columns[COLUMN_NAMES[number]] = codec.decode((form, codec.DTYPES[kind], count, parameter, body))
    return columns, texts


def _columns_with_lags(payload: bytes) -> tuple[dict[str, Column], list[str]]:
    """Columns whose stamps may be stored as lags: the stamp minus the first sample time of its message."""
    columns, texts = _columns(payload)
    if "lag" in columns and {"ts", "message"} <= columns.keys():
        lag = columns.pop("lag")
        _points_into("a row's message", columns["message"], len(lag))
        columns["ms"] = lag + _first_times(columns["ts"], columns["message"], len(lag))
    return columns, texts


def _first_times(ts: I64, message: I32, messages: int) -> I64:
    """The time of the first row of each message; 0 for a message that no row names."""
    times = np.zeros(messages, np.int64)
    times[message[::-1]] = ts[::-1]  # of several assignments to one place the last one counts
    return times


def _record(payload: bytes) -> bytes:
    try:
        return _unzstd(payload[1:]) if payload[:1] == b"\1" else payload[1:]
    except zstandard.ZstdError as error:
        raise CorruptBlock(f"a record is damaged: {error}") from error


READERS: Mapping[tuple[int, int], Callable[[bytes], Any]] = MappingProxyType(
    {
        **{(kind, 1): _columns for kind in (LOG, CHUNK, TIMELINES, PENDING, HOURS, LEDGER)},
        **{
            (kind, 1): _record
            for kind in (INPUTS, MANIFEST, MONTH, DEAD, RETRACTION, PLACEMENT, ANNOUNCED, WATERMARK, ROUND, FOLDED)
        },
        **{(kind, 2): _numbered_columns for kind in (LOG, PENDING, LEDGER)},
        **{(kind, 1): _numbered_columns for kind in (STAMPS, VECTOR)},
        (CHUNK, 2): _columns_with_pages,
        (TIMELINES, 2): _columns_with_lags,
        (INPUTS, 2): _columns,
        (MANIFEST, 2): _record,
    }
)
_NEWEST = dict(sorted(READERS))  # of each kind: the version that is written
_WITH_PAGES = frozenset({(CHUNK, 2)})


def _unzstd(body: bytes) -> bytes:
    with zstandard.ZstdDecompressor().stream_reader(body) as reader:
        raw = reader.read(RECORD_BYTES_MAX + 1)
    if len(raw) > RECORD_BYTES_MAX:
        raise CorruptBlock("a record is larger than any we write", wanted=f"at most {RECORD_BYTES_MAX} bytes")
    return raw


_MESSAGES = ("ms", "process", "sequence", "source")


@dataclass(frozen=True, slots=True)
class Messages:
    """A message table: the stamp (ms, process, sequence) and the source of each of M messages."""

    ms: I64
    process: I64
    sequence: I64
    source: I32
    sources: tuple[str, ...]
    encoded: Mapping[str, codec.Encoded] | None = None  # its columns, where several blocks hold it

    def __len__(self) -> int:
        return len(self.ms)

    def columns(self) -> Mapping[str, Column | codec.Encoded]:
        """The columns of a block."""
        return self.encoded or {
            "ms": self.ms,
            "process": self.process.astype(np.uint32),
            "sequence": self.sequence.astype(np.uint16),
            "source": self.source,
        }

    @classmethod
    def of(cls, columns: Mapping[str, Column], texts: list[str]) -> "Messages":
        """Build a table from the columns of a block; a source number without a name is damage."""
        source = columns["source"]
        same_length(columns, _MESSAGES)
        _points_into("a message's source", source, len(texts))
        process, sequence = columns["process"].astype(np.int64), columns["sequence"].astype(np.int64)
        return cls(columns["ms"], process, sequence, source, tuple(texts))


def log_column(part: int) -> bytes:
    """The column of one part of a block: ``v`` for the first, ``v`` and the part's number for the others."""
    return b"v" if part == 0 else b"v" + part.to_bytes(2, "big")


@dataclass(frozen=True, slots=True)
class LogBlock:
    """One batch's rows of one HourShard, grouped by series, in order of arrival within a series.

    ``series``, ``metrics`` u64[S]; ``counts`` i32[S] rows per series; ``message`` i32[N] into ``messages``;
    ``ts`` i64[N] ms; ``values`` f64[N].
    """

    messages: Messages
    series: U64
    metrics: U64
    counts: I32
    message: I32
    ts: I64
    values: F64

    def to_bytes(self) -> bytes:
        """The framed block."""
        first, index = kernels.distinct(self.metrics)
        columns: dict[str, Column | codec.Encoded] = {
            **self.messages.columns(),
            "series_hash": self.series,
            "metric_hash": self.metrics[first],
            "metric": index,
            "counts": self.counts,
            "message": self.message,
            "ts": self.ts,
            "values": self.values,
        }
        return encode_columns(LOG, columns, list(self.messages.sources))

    def to_cells(self, samples_max: int = limits.LOG_CELL_SAMPLES_MAX) -> dict[bytes, bytes]:
        """The cells of this block's row: one, or for a large block several with consecutive samples."""
        cuts = range(0, max(1, len(self.ts)), samples_max)
        parts = [self] if len(cuts) == 1 else [self._rows(at, at + samples_max) for at in cuts]
        return {log_column(number): part.to_bytes() for number, part in enumerate(parts)}

    def _rows(self, start: int, stop: int) -> "LogBlock":
        ends = np.cumsum(self.counts, dtype=np.int64)
        counts = np.clip(ends, start, stop) - np.clip(ends - self.counts, start, stop)
        has_rows = counts > 0
        rows = slice(start, stop)
        return LogBlock(
            self.messages,
            self.series[has_rows],
            self.metrics[has_rows],
            counts[has_rows].astype(np.int32),
            self.message[rows],
            self.ts[rows],
            self.values[rows],
        )

    @classmethod
    def from_cells(cls, cells: Mapping[bytes, bytes]) -> "list[LogBlock]":
        """Decode the parts of a row, in their order; raise ``CorruptBlock``."""
        return [cls.from_bytes(raw) for _, raw in sorted(cells.items())]

    @classmethod
    def from_bytes(cls, raw: bytes) -> "LogBlock":
        """Decode a block; raise ``CorruptBlock``."""
        c, texts = decode_named(LOG, raw, _LOG)
        same_length(c, ("ts", "message", "values"))
        same_length(c, ("series_hash", "metric", "counts"))
        adds_up(c["counts"], len(c["ts"]))
        _points_into("a row's message", c["message"], len(c["ms"]))
        _points_into("a series' metric", c["metric"], len(c["metric_hash"]))
        return cls(
            Messages.of(c, texts),
            c["series_hash"],
            c["metric_hash"][c["metric"]],
            c["counts"],
            c["message"],
            c["ts"],
            c["values"],
        )


@dataclass(frozen=True, slots=True)
class TimelinesPage:
    """A part of a HourShard's timelines: the messages they name, and per timeline its (ts, message) columns."""

    messages: Messages
    counts: I32
    ts: I64
    message: I32

    def to_bytes(self) -> bytes:
        """The framed page."""
        columns: dict[str, Column | codec.Encoded] = {
            **self.messages.columns(),
            "counts": self.counts,
            "ts": self.ts,
            "message": self.message,
        }
        lag = self.messages.ms - _first_times(self.ts, self.message, len(self.messages))
        trial = slice(_TRIAL_MESSAGES)
        if len(codec.encode(lag[trial], apart=True)[-1]) < len(codec.encode(self.messages.ms[trial])[-1]):
            del columns["ms"]
            columns["lag"] = lag
        return encode_columns(TIMELINES, columns, list(self.messages.sources), apart=("lag", "sequence"))

    @classmethod
    def from_bytes(cls, raw: bytes) -> "TimelinesPage":
        """Decode a page; raise ``CorruptBlock``."""
        c, texts = decode_named(TIMELINES, raw, _TIMELINES)
        same_length(c, ("ts", "message"))
        adds_up(c["counts"], len(c["ts"]))
        _points_into("a row's message", c["message"], len(c["ms"]))
        return cls(Messages.of(c, texts), c["counts"], c["ts"], c["message"])


_LOG = (*_MESSAGES, "series_hash", "metric_hash", "metric", "counts", "message", "ts", "values")
_TIMELINES = (*_MESSAGES, "counts", "ts", "message")


def same_length(columns: Mapping[str, Column], names: tuple[str, ...]) -> None:
    rows = len(columns[names[0]])
    for name in names:
        if len(columns[name]) != rows:
            raise CorruptBlock("columns of one table differ in length", got=(name, len(columns[name])), wanted=rows)


def adds_up(counts: Column, rows: int) -> None:
    """Check that the counts per series add up to the number of rows."""
    if (len(counts) and int(counts.min()) < 0) or int(counts.sum()) != rows:
        raise CorruptBlock("a block's counts do not add up", got=int(counts.sum()), wanted=rows)


def _points_into(what: str, numbers: Column, size: int) -> None:
    """Check that row numbers name rows of their table, since kernels do not check indices."""
    if numbers.dtype != np.int32:
        raise CorruptBlock(f"{what} is no number of a row", got=numbers.dtype, wanted="int32")
    if len(numbers) and int(numbers.view(np.uint32).max()) >= size:  # as unsigned, negative numbers are large
        raise CorruptBlock(f"{what} is not in its table", got=int(numbers.max()), wanted=f"0..{size - 1}")
