"""Protobuf's wire format in plain Python, for what is read or written once: labels of a new series, metadata, answers.

What is read for every sample is compiled (``protobuf_kernels``). Enter by ``fields`` to read; ``delimited`` and
``number`` write. Nothing here knows any message.
"""

import struct
from collections.abc import Iterator
from itertools import islice

from ingest.protocols.common.protobuf_kernels import (
    BAD_FORM,
    BAD_NUMBER,
    BAD_VARINT,
    BEYOND,
    BYTES,
    FAULTS,
    FIXED32,
    FIXED64,
    VARINT,
)
from spm.errors import BadMessage

_SIZES = {FIXED64: 8, FIXED32: 4}
_TEXTS_MAX = 16  # fields of a small message that are looked at: those read here have five


def damaged(fault: int, at: int, what: str) -> BadMessage:
    """The error for bytes that are no protobuf."""
    return BadMessage(
        f"not {what}: {FAULTS[fault]}",
        got=f"damage at byte {at} of the message",
        wanted="protobuf, uncompressed here",
        remedy="See whether something on the way cuts bodies off or decompresses them.",
    )


def fields(raw: bytes, what: str) -> Iterator[tuple[int, int, int | bytes]]:
    """(Number, form, value) of each field: an int for VARINT, else the bytes. ``BadMessage`` where it is damaged."""
    at = 0
    while at < len(raw):
        tag, after = _varint(raw, at, what)
        number, form = tag >> 3, tag & 7
        if not 0 < number <= 0x1FFFFFFF:
            raise damaged(BAD_NUMBER, at, what)
        if form == VARINT:
            value, at = _varint(raw, after, what)
            yield number, form, value
            continue
        if form not in (BYTES, *_SIZES):
            raise damaged(BAD_FORM, at, what)
        size, after = _varint(raw, after, what) if form == BYTES else (_SIZES[form], after)
        if size > len(raw) - after:
            raise damaged(BEYOND, at, what)
        at = after + size
        yield number, form, raw[after:at]


def texts(raw: bytes, what: str) -> dict[int, bytes]:
    """The fields of a small message that are bytes, by number; of several with one number the last counts."""
    first = islice(fields(raw, what), _TEXTS_MAX)
    return {number: value for number, _, value in first if isinstance(value, bytes)}


def delimited(number: int, raw: bytes) -> bytes:
    """A field that is bytes, text or a message."""
    return varint(number << 3 | BYTES) + varint(len(raw)) + raw


def number(number: int, value: int) -> bytes:
    """A field that is a whole number; negative ones take ten bytes."""
    return varint(number << 3 | VARINT) + varint(value & 0xFFFF_FFFF_FFFF_FFFF)


def double(number: int, value: float) -> bytes:
    """A field that is a float64."""
    return varint(number << 3 | FIXED64) + struct.pack("<d", value)


def fixed64(number: int, value: int) -> bytes:
    """A field of 64 bits, signed or not."""
    return varint(number << 3 | FIXED64) + (value & 0xFFFF_FFFF_FFFF_FFFF).to_bytes(8, "little")


def varint(value: int) -> bytes:
    """A number that is not negative."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _varint(raw: bytes, at: int, what: str) -> tuple[int, int]:
    value = 0
    for place in range(at, min(at + 10, len(raw))):
        value |= (raw[place] & 0x7F) << 7 * (place - at)
        if raw[place] < 0x80:
            if value >> 64:
                break
            return value, place + 1
    raise damaged(BAD_VARINT, at, what)
