"""Encodes samples as chunks in Prometheus' XOR encoding, and computes checksums of frames, for streamed remote read.

A chunk has the number of its samples (2 bytes), the first time as a signed varint and value as 64 bits, the delta of
the second time as a varint, and from then on the delta of deltas of times, and the XOR of a value's bits with the bits
before, in as few bits as their ranges need. A chunk has at most `READ_CHUNK_SAMPLES`. Enter by `chunks`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numba import njit

from spm.arrays import F64, I64, U8, U32, U64
from spm.limits import READ_CHUNK_SAMPLES

_SAMPLE_BYTES = 19  # at most: 68 bits for a time, 77 for a value
_HEAD_BYTES = 32  # additional bytes for the first two samples of a chunk
_PLAIN: Final = ("C", "W")  # kernels are compiled for such arrays alone
_CASTAGNOLI = 0x82F63B78  # the polynomial of CRC-32C, its bits reversed


@dataclass(frozen=True, slots=True)
class Chunks:
    """Chunks of series: those of series i are `series[i]:series[i + 1]`, each with its first and last time."""

    series: I64  # [S + 1]
    first_ms: I64
    last_ms: I64
    borders: I64  # [C + 1]: chunk c is `raw[borders[c]:borders[c + 1]]`
    raw: U8


def chunks(ts: I64, values: F64, offsets: I64) -> Chunks:
    """Encodes series; the samples of series i are `offsets[i]:offsets[i + 1]`."""
    counts = -(-np.diff(offsets) // READ_CHUNK_SAMPLES)
    series = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    within = np.arange(series[-1]) - np.repeat(series[:-1], counts)
    start = np.repeat(offsets[:-1], counts) + within * READ_CHUNK_SAMPLES
    end = np.minimum(start + READ_CHUNK_SAMPLES, np.repeat(offsets[1:], counts))
    times, bits = np.require(ts, np.int64, _PLAIN), np.require(values, np.float64, _PLAIN).view(np.uint64)
    raw = np.zeros(int((end - start).sum()) * _SAMPLE_BYTES + len(start) * _HEAD_BYTES, np.uint8)
    borders = np.zeros(len(start) + 1, np.int64)
    _encode(times, bits, start, end, raw, borders)
    return Chunks(series, times[start], times[end - 1], borders, raw[: borders[-1]])


def checksum(raw: bytes) -> int:
    """Computes the CRC-32C."""
    return int(_crc(np.frombuffer(raw, np.uint8), _TABLE))


@njit(cache=True, nogil=True)
def _encode(ts: I64, bits: U64, starts: I64, ends: I64, out: U8, borders: I64) -> None:
    at = 0  # in bits
    for chunk in range(len(starts)):
        first, end = starts[chunk], ends[chunk]
        at = _put(out, at, np.uint64(end - first), 16)
        at = _varint(out, at, np.uint64(ts[first] << 1) ^ np.uint64(ts[first] >> 63))
        at = _put(out, at, bits[first], 64)
        delta, leading, trailing = 0, -1, 0
        for i in range(first + 1, end):
            step = ts[i] - ts[i - 1]
            at = _varint(out, at, np.uint64(step)) if i == first + 1 else _change(out, at, step - delta)
            delta = step
            differs = bits[i] ^ bits[i - 1]
            if differs == 0:
                at += 1  # a bit that is 0
                continue
            before, after = min(_zeros_before(differs), 31), _zeros_after(differs)
            if leading >= 0 and before >= leading and after >= trailing:
                at = _put(out, at, np.uint64(2), 2)
            else:
                leading, trailing = before, after
                at = _put(out, at, np.uint64(3), 2)
                at = _put(out, at, np.uint64(leading), 5)
                at = _put(out, at, np.uint64((64 - leading - trailing) & 63), 6)
            at = _put(out, at, differs >> np.uint64(trailing), 64 - leading - trailing)
        at = (at + 7) // 8 * 8
        borders[chunk + 1] = at // 8


@njit(cache=True, nogil=True)
def _change(out: U8, at: int, change: int) -> int:
    """Writes a delta of deltas: a prefix that gives the number of bits, and these bits."""
    if change == 0:
        return at + 1
    for prefix, length, width in ((2, 2, 14), (6, 3, 17), (14, 4, 20)):
        half = 1 << (width - 1)
        if -half < change <= half:
            return _put(out, _put(out, at, np.uint64(prefix), length), np.uint64(change), width)
    return _put(out, _put(out, at, np.uint64(15), 4), np.uint64(change), 64)


@njit(cache=True, nogil=True)
def _varint(out: U8, at: int, number: np.uint64) -> int:
    while number > np.uint64(127):
        at = _put(out, at, (number & np.uint64(127)) | np.uint64(128), 8)
        number >>= np.uint64(7)
    return _put(out, at, number, 8)


@njit(cache=True, nogil=True)
def _put(out: U8, at: int, number: np.uint64, count: int) -> int:
    """Writes the lowest `count` bits of a number, the highest first, into bytes that are zero."""
    while count > 0:
        free = 8 - (at & 7)
        width = min(free, count)
        part = (number >> np.uint64(count - width)) & np.uint64((1 << width) - 1)
        out[at >> 3] |= np.uint8(part << np.uint64(free - width))
        at += width
        count -= width
    return at


@njit(cache=True, nogil=True)
def _zeros_before(number: np.uint64) -> int:
    count = 0
    for width in (32, 16, 8, 4, 2, 1):
        if number >> np.uint64(64 - width) == 0:
            count += width
            number <<= np.uint64(width)
    return count


@njit(cache=True, nogil=True)
def _zeros_after(number: np.uint64) -> int:
    count = 0
    for width in (32, 16, 8, 4, 2, 1):
        if number << np.uint64(64 - width) == 0:
            count += width
            number >>= np.uint64(width)
    return count


@njit(cache=True, nogil=True)
def _crc(raw: U8, table: U32) -> int:
    crc = np.uint32(0xFFFFFFFF)
    for byte in raw:
        crc = table[(crc ^ byte) & np.uint32(255)] ^ (crc >> np.uint32(8))
    return np.int64(crc ^ np.uint32(0xFFFFFFFF))  # type: ignore[return-value]  # in compiled code it is not a Python int


def _table() -> U32:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_CASTAGNOLI), table >> 1).astype(np.uint32)
    return table


_TABLE = _table()
