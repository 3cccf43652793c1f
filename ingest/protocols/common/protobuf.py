"""Protobuf's wire format in plain Python, for messages that are rare: labels of a new series, metadata, answers.

The fields of every sample are read by compiled code (``protobuf_kernels``). Enter by ``read_fields`` to read, and by
``encode_bytes`` and ``encode_integer`` to write. Nothing here knows any message type.
"""

import struct
from collections.abc import Iterator
from itertools import islice

from ingest.protocols.common.protobuf_kernels import (
    BAD_NUMBER,
    BAD_VARINT,
    BAD_WIRE_TYPE,
    BEYOND,
    BYTES,
    FAULTS,
    FIXED32,
    FIXED64,
    VARINT,
)
from spm.errors import BadMessage

_SIZES = {FIXED64: 8, FIXED32: 4}
_FIELDS_MAX = 16  # fields of a small message that are read; the messages read here have five


def damage_error(fault: int, at: int, what: str) -> BadMessage:
    """Returns the error for bytes that are no protobuf."""
    return BadMessage(
        f"not {what}: {FAULTS[fault]}",
        got=f"damage at byte {at} of the message",
        wanted="protobuf, uncompressed here",
        remedy="Check whether a proxy between sender and server truncates or decompresses bodies.",
    )


def read_fields(raw: bytes, what: str) -> Iterator[tuple[int, int, int | bytes]]:
    """Yields (number, wire type, value) of each field: an int for VARINT, else bytes. ``BadMessage``: it is damaged."""
    at = 0
    while at < len(raw):
        tag, after = _read_varint(raw, at, what)
        number, wire_type = tag >> 3, tag & 7
        if not 0 < number <= 0x1FFFFFFF:
            raise damage_error(BAD_NUMBER, at, what)
        if wire_type == VARINT:
            value, at = _read_varint(raw, after, what)
            yield number, wire_type, value
            continue
        if wire_type not in (BYTES, *_SIZES):
            raise damage_error(BAD_WIRE_TYPE, at, what)
        size, after = _read_varint(raw, after, what) if wire_type == BYTES else (_SIZES[wire_type], after)
        if size > len(raw) - after:
            raise damage_error(BEYOND, at, what)
        at = after + size
        yield number, wire_type, raw[after:at]


def read_byte_fields(raw: bytes, what: str) -> dict[int, bytes]:
    """Returns the fields of a small message that are bytes, by number. Of several with one number the last counts."""
    first = islice(read_fields(raw, what), _FIELDS_MAX)
    return {number: value for number, _, value in first if isinstance(value, bytes)}


def read_varints(raw: bytes, what: str) -> list[int]:
    """Returns packed numbers, each a varint."""
    values, at = list[int](), 0
    while at < len(raw):
        value, at = _read_varint(raw, at, what)
        values.append(value)
    return values


def encode_bytes(number: int, raw: bytes) -> bytes:
    """Returns a field of bytes, text or a message."""
    return encode_varint(number << 3 | BYTES) + encode_varint(len(raw)) + raw


def encode_integer(number: int, value: int) -> bytes:
    """Returns a field of an integer; a negative one takes ten bytes."""
    return encode_varint(number << 3 | VARINT) + encode_varint(value & 0xFFFF_FFFF_FFFF_FFFF)


def encode_double(number: int, value: float) -> bytes:
    """Returns a field of a float64."""
    return encode_varint(number << 3 | FIXED64) + struct.pack("<d", value)


def encode_fixed64(number: int, value: int) -> bytes:
    """Returns a field of a 64-bit integer, signed or unsigned."""
    return encode_varint(number << 3 | FIXED64) + (value & 0xFFFF_FFFF_FFFF_FFFF).to_bytes(8, "little")


def encode_varint(value: int) -> bytes:
    """Returns a number that is not negative as a varint."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _read_varint(raw: bytes, at: int, what: str) -> tuple[int, int]:
    value = 0
    for place in range(at, min(at + 10, len(raw))):
        value |= (raw[place] & 0x7F) << 7 * (place - at)
        if raw[place] < 0x80:
            if value >> 64:
                break
            return value, place + 1
    raise damage_error(BAD_VARINT, at, what)
