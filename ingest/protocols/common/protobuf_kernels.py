"""Compiled reading of protobuf's wire format, for all messages.

Enter by ``read_field``, which reads one field of any type. Nothing here reads outside [at, end): a length or a number
that crosses the end is a fault. Faults are negative field numbers (``FAULTS`` has the texts). Groups are faults, too:
no message read here has them. ``put_text`` writes a text as a field. Functions that run for every field are inlined:
numba counts the references of each array argument, which costs more than reading a number.
"""

import numpy as np
from numba import njit

from spm.arrays import U8
from spm.store.encoding.byte_kernels import copy_bytes

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types
BAD_VARINT, BEYOND, BAD_WIRE_TYPE, BAD_NUMBER = -1, -2, -3, -4
FAULTS = {
    BAD_VARINT: "a number is cut off or longer than ten bytes",
    BEYOND: "a field is longer than the rest of its message",
    BAD_WIRE_TYPE: "a field has an unknown wire type",
    BAD_NUMBER: "a field has the number 0",
}
_SEVEN, _LOW, _MORE = np.uint64(7), np.uint64(0x7F), 0x80


@njit(nogil=True, cache=True, forceinline=True)
def read_varint(body: U8, at: int, end: int) -> tuple[int, np.uint64]:
    """Returns (end, number); an end of -1 if the number is cut off or does not fit 64 bits."""
    if at < end and body[at] < _MORE:
        return at + 1, np.uint64(body[at])
    value, shift, i = np.uint64(0), np.uint64(0), at
    while i < end and i < at + 10:
        byte = body[i]
        value |= (np.uint64(byte) & _LOW) << shift
        i += 1
        if byte < _MORE:
            if i == at + 10 and byte > 1:
                break
            return i, value
        shift += _SEVEN
    return -1, np.uint64(0)


@njit(nogil=True, cache=True)
def read_field(body: U8, at: int, end: int) -> tuple[int, int, int, int, np.uint64]:
    """Returns (number, wire type, first byte, end, value) of the field at ``at``; the next field starts at its end.

    The value is that of a varint, else 0. A number below 0 is a fault.
    """
    nothing = np.uint64(0)
    i, tag = read_varint(body, at, end)
    if i < 0:
        return BAD_VARINT, 0, at, at, nothing
    number, wire_type = int(np.int64(tag >> np.uint64(3))), int(np.int64(tag & _SEVEN))
    if number <= 0 or number > 0x1FFFFFFF:
        return BAD_NUMBER, 0, at, at, nothing
    if wire_type == VARINT:
        stop, value = read_varint(body, i, end)
        if stop < 0:
            return BAD_VARINT, 0, i, i, nothing
        return number, wire_type, stop, stop, value
    if wire_type == BYTES:
        i, size = read_varint(body, i, end)
        if i < 0:
            return BAD_VARINT, 0, at, at, nothing
        if size > np.uint64(end - i):
            return BEYOND, 0, at, at, nothing
        return number, wire_type, i, i + int(np.int64(size)), nothing
    if wire_type not in (FIXED64, FIXED32):
        return BAD_WIRE_TYPE, 0, at, at, nothing
    stop = i + (8 if wire_type == FIXED64 else 4)
    if stop > end:
        return BEYOND, 0, at, at, nothing
    return number, wire_type, i, stop, nothing


@njit(nogil=True, cache=True, forceinline=True)
def put_varint(into: U8, at: int, value: int) -> int:
    """Write a number that is not negative; returns where it ends."""
    while value >= _MORE:
        into[at] = np.uint8(value & 0x7F | _MORE)
        value >>= 7
        at += 1
    into[at] = np.uint8(value)
    return at + 1


@njit(nogil=True, cache=True, forceinline=True)
def varint_size(value: int) -> int:
    """Returns the size in bytes of a number that is not negative."""
    size = 1
    while value >= _MORE:
        value >>= 7
        size += 1
    return size


@njit(nogil=True, cache=True, forceinline=True)
def put_text(tag: int, source: U8, start: int, end: int, into: U8, at: int) -> int:
    """Write a text as a field; returns where it ends. An empty text is left out, as encoders do."""
    if start == end:
        return at
    into[at] = np.uint8(tag)
    return copy_bytes(source, start, end, into, put_varint(into, at + 1, end - start))


@njit(nogil=True, cache=True, forceinline=True)
def text_size(size: int) -> int:
    """Returns the size in bytes of a text of this size as a field with a number below 16."""
    return 0 if size == 0 else 1 + varint_size(size) + size
