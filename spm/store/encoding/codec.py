"""Encodes columns to bytes and decodes them, bit for bit.

A column is a one-dimensional numpy array. ``encode`` chooses the form: a constant, raw bytes (few or random values),
pcodec with first-order deltas (integers), decimals as integers × 10^-k with a list of exceptions, or pcodec floats,
which rows of runs may store as multiples of a number or with fewer bits where that is smaller (``dense``).
``decode`` returns an equal array of the same dtype, always writable, since kernels are compiled for writable arrays
only. pcodec: Loncaric, "Pco", lossless.
"""

import struct
from typing import Any

import numpy as np
import numpy.typing as npt
import zstandard
from pcodec import ChunkConfig, DeltaSpec, ModeSpec, PagingSpec, standalone

from spm.arrays import F64, I32
from spm.errors import CorruptBlock, LimitExceeded
from spm.limits import COLUMN_VALUES_MAX
from spm.store.encoding import kernels

Column = npt.NDArray[Any]
Encoded = tuple[int, str, int, int, bytes]  # form, dtype, count, parameter, bytes

RAW, CONSTANT, PCO, DECIMAL, FLOAT, ZSTD = range(6)
DTYPES = ("<u8", "<i8", "<f8", "<u4", "<i4", "<u2", "|u1")  # their order is written in frames: only ever added to
_DTYPES: dict[str, np.dtype[Any]] = {d: np.dtype(d) for d in DTYPES}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_SMALL = 1_024  # values
_FEW = 4  # values for which no form beats raw bytes
_MISS_SHARE = 64  # with one exception in so many values the integer form is still smaller
SCALES = 10  # decimals are tried up to 9 digits after the point

_INTEGERS = ChunkConfig(compression_level=8, delta_spec=DeltaSpec.try_consecutive(1), mode_spec=ModeSpec.classic())
_APART = ChunkConfig(compression_level=8, delta_spec=DeltaSpec.no_op(), mode_spec=ModeSpec.classic())
_FLOATS = ChunkConfig(compression_level=4, delta_spec=DeltaSpec.try_consecutive(1), mode_spec=ModeSpec.classic())
_DENSE = ChunkConfig(compression_level=8, delta_spec=DeltaSpec.try_consecutive(1), mode_spec=ModeSpec.classic())
_MODES = ChunkConfig(compression_level=8, delta_spec=DeltaSpec.try_consecutive(1), mode_spec=ModeSpec.auto())
_PIECES = 8  # both are tried on pieces from all over a column, whose series may be of several kinds
_PIECE = 2_048  # values
_SAVING = 8  # the other modes unpack up to 1.7 times slower, so that they must save one byte in so many


def encode(column: Column, *, random: bool = False, apart: bool = False, dense: bool = False) -> Encoded:
    """Encode a column: its form and its bytes; raise ``LimitExceeded`` for more values than ``decode`` accepts.

    ``random`` says that its values are hashes, which nothing compresses. ``apart`` says that neighbouring integers may
    be unrelated: they are packed as they are or as differences, whichever is smaller. ``dense`` spends more time on
    floats, for rows that are written once and kept for weeks.
    """
    dtype, count = _NAMES.get(column.dtype, ""), len(column)
    assert dtype, f"BUG: no column form for {column.dtype}"
    if count > COLUMN_VALUES_MAX:  # what a reader refuses must not be written
        raise LimitExceeded("a column has more values than can be read back", got=count, wanted=COLUMN_VALUES_MAX)
    if random or count < _FEW:
        return RAW, dtype, count, 0, column.tobytes()
    column = np.ascontiguousarray(column)
    if _is_constant(column):
        return CONSTANT, dtype, count, 0, column[:1].tobytes()
    if dtype == "<f8":
        return _encode_floats(column, dense=dense)
    if dtype == "|u1":
        return ZSTD, dtype, count, 0, zstandard.ZstdCompressor(level=1).compress(column.tobytes())  # pcodec: ≥ 16 bits
    packed = standalone.simple_compress(column, _INTEGERS)
    if apart:
        packed = min(packed, standalone.simple_compress(column, _APART), key=len)
    return PCO, dtype, count, 0, packed


def encode_few(*numbers: int) -> Encoded:
    """Encode so few i64 that they stay as they are, as ``encode`` does."""
    assert len(numbers) < _FEW, "BUG: many numbers are packed"
    return RAW, "<i8", len(numbers), 0, struct.pack(f"<{len(numbers)}q", *numbers)


def _is_constant(column: Column) -> bool:
    """Return whether all values have the same bits."""
    if len(column) <= _SMALL:  # a comparison of arrays costs more than that of so many bytes
        text, size = column.tobytes(), column.itemsize
        return text[:size] == text[-size:] and text == text[:size] * len(column)
    raw = column.view(np.int64) if column.dtype == np.float64 else column
    return bool(raw[0] == raw[-1]) and bool((raw == raw[0]).all())


def split_decimals(column: F64) -> tuple[int, Column, I32]:
    """Return the scale k of decimals, the integers × 10^k, and the places of values that are none; or -1, the column.

    An exception's place repeats the integer before it. Up to one value in ``_MISS_SHARE`` may be one.
    """
    bits = column.view(np.int64)
    misses_max = len(column) // _MISS_SHARE
    k, _ = kernels.decimal_scale(column, bits, misses_max)
    if k >= 0:
        whole, missed = kernels.decimal_split(column, bits, k, misses_max)
        if not (len(missed) == 1 and missed[0] < 0):
            return k, whole, missed
    return -1, column, np.empty(0, np.int32)


def paged_config(numbers: Column, sizes: list[int]) -> ChunkConfig:
    """Return how integers, or floats that are kept for long, are packed in pages of these sizes."""
    mode = ModeSpec.classic() if numbers.dtype == np.int64 or not _saves_by_modes(numbers) else ModeSpec.auto()
    return ChunkConfig(
        compression_level=8,
        delta_spec=DeltaSpec.try_consecutive(1),
        mode_spec=mode,
        paging_spec=PagingSpec.exact_page_sizes(sizes),
    )


def _encode_floats(column: Column, *, dense: bool) -> Encoded:
    k, whole, missed = split_decimals(column)
    if k >= 0:
        packed = standalone.simple_compress(whole, _INTEGERS)
        head = len(missed).to_bytes(4, "little") + missed.tobytes() + column.view(np.int64)[missed].tobytes()
        return DECIMAL, "<f8", len(column), k, head + packed
    return FLOAT, "<f8", len(column), 0, _pack_densely(column) if dense else standalone.simple_compress(column, _FLOATS)


def _pack_densely(column: Column) -> bytes:
    """Pack floats in pcodec's classic mode, or in the mode that it finds if this saves enough."""
    return bytes(standalone.simple_compress(column, _MODES if _saves_by_modes(column) else _DENSE))


def _saves_by_modes(column: Column) -> bool:
    """Return whether the mode that pcodec finds is smaller than the classic one, on pieces of the column.

    pcodec's own choice is an estimate: of a walk in small steps it takes multiples although classic is smaller.
    """
    pieces = range(0, len(column), max(_PIECE, len(column) // _PIECES))
    sample = column if len(column) <= _PIECE else np.concatenate([column[at : at + _PIECE] for at in pieces])
    classic, searched = (standalone.simple_compress(sample, how) for how in (_DENSE, _MODES))
    return bool(_SAVING * len(searched) <= (_SAVING - 1) * len(classic))


def decode(encoded: Encoded) -> Column:
    """Decode a column; raise ``CorruptBlock`` when the bytes do not hold as many values as they claim."""
    form, dtype, count, parameter, raw = encoded
    if dtype not in _DTYPES or not 0 <= count <= COLUMN_VALUES_MAX or not 0 <= parameter < SCALES:
        raise CorruptBlock("a column of unknown kind or size", got=(form, dtype, count, parameter))
    try:
        column = _decode(form, _DTYPES[dtype], count, parameter, raw)
    except (ValueError, TypeError, RuntimeError, IndexError, zstandard.ZstdError) as error:
        raise CorruptBlock(f"a column does not decode: {error}", got=(form, dtype, count)) from error
    if len(column) != count or column.dtype != _DTYPES[dtype]:
        raise CorruptBlock("a column has a wrong length", got=len(column), wanted=count)
    return column


def decode_into(encoded: Encoded, into: Column) -> None:
    """Decode a column into an array of as many values, so that many small columns need only one array."""
    form, dtype, count, parameter, raw = encoded
    if count == len(into) and dtype == into.dtype.str and parameter == 0:
        if form == RAW and len(raw) == into.nbytes:
            into[:] = np.frombuffer(raw, into.dtype)
            return
        if form == CONSTANT and len(raw) == into.itemsize:
            into[:] = np.frombuffer(raw, into.dtype)
            return
        if form == PCO:
            try:
                _unpack(raw, into)
            except (ValueError, TypeError, RuntimeError) as error:
                raise CorruptBlock(f"a column does not decode: {error}", got=(form, dtype, count)) from error
            return
    column = decode(encoded)
    if len(column) != len(into) or column.dtype != into.dtype:
        raise CorruptBlock("a column of another kind or length", got=(dtype, count), wanted=(into.dtype.str, len(into)))
    into[:] = column


def _decode(form: int, dtype: np.dtype[Any], count: int, parameter: int, raw: bytes) -> Column:
    if form == RAW:
        return np.frombuffer(raw, dtype).copy()
    if form == CONSTANT:
        [value] = np.frombuffer(raw, dtype)
        column = np.empty(count, dtype)
        column.fill(value)
        return column
    if form in (PCO, FLOAT):
        return _unpack(raw, np.empty(count, dtype))
    if form == ZSTD:
        with zstandard.ZstdDecompressor().stream_reader(raw) as reader:
            return np.frombuffer(reader.read(count * dtype.itemsize + 1), dtype).copy()
    if form == DECIMAL:
        return _decode_decimals(count, parameter, raw)
    raise CorruptBlock("unknown form of a column", got=form, wanted=f"0..{ZSTD}")


def _decode_decimals(count: int, k: int, raw: bytes) -> Column:
    misses = int.from_bytes(raw[:4], "little")
    at = np.frombuffer(raw, "<i4", misses, 4)
    bits = np.frombuffer(raw, "<i8", misses, 4 + 4 * misses)
    values = _unpack(raw[4 + 12 * misses :], np.empty(count, np.int64)).astype(np.float64)
    if k:
        values /= 10.0**k
    values.view(np.int64)[at] = bits
    return values


def _unpack(raw: bytes, into: Column) -> Column:
    """Decompress into an array of the claimed size, which bounds the memory whatever the stream says."""
    progress = standalone.simple_decompress_into(raw, into)
    if progress.n_processed != len(into) or not progress.finished:
        raise ValueError(f"a stream of {progress.n_processed} values or more")
    return into
