"""A plain reader of streamed remote read, bit by bit, to hold the writer against. Enter by `read_stream`."""

from typing import Any

Points = list[tuple[int, int]]  # time, bits of the value
_WIDTHS = (0, 14, 17, 20, 64)


class _Bits:
    def __init__(self, raw: bytes) -> None:
        self._number, self._left = int.from_bytes(raw, "big"), len(raw) * 8

    def take(self, count: int) -> int:
        self._left -= count
        assert self._left >= 0
        return self._number >> self._left & (1 << count) - 1

    def varint(self) -> int:
        decoded = shift = 0
        while True:
            byte = self.take(8)
            decoded, shift = decoded | (byte & 127) << shift, shift + 7
            if byte < 128:
                return decoded


def points_of(chunk: bytes) -> Points:
    """The samples of one chunk."""
    bits = _Bits(chunk)
    count, first = bits.take(16), bits.varint()
    at, value = first >> 1 ^ -(first & 1), bits.take(64)
    decoded, distance, leading, trailing = [(at, value)], 0, 0, 0
    for number in range(1, count):
        distance = bits.varint() if number == 1 else distance + _change(bits)
        at += distance
        if bits.take(1):
            if bits.take(1):
                leading = bits.take(5)
                trailing = 64 - leading - (bits.take(6) or 64)
            value ^= bits.take(64 - leading - trailing) << trailing
        decoded.append((at, value))
    return decoded


def _change(bits: _Bits) -> int:
    ones = 0
    while ones < 4 and bits.take(1):
        ones += 1
    width = _WIDTHS[ones]
    decoded = bits.take(width)
    half = 1 << width - 1 if width else 0
    wraps = decoded >= half if width == 64 else decoded > half  # a short one may be as much as half
    return decoded - (1 << width) if width and wraps else decoded


def checksum(raw: bytes) -> int:
    """CRC-32C, a bit at a time."""
    decoded = 0xFFFFFFFF
    for byte in raw:
        decoded ^= byte
        for _ in range(8):
            decoded = decoded >> 1 ^ (0x82F63B78 if decoded & 1 else 0)
    return decoded ^ 0xFFFFFFFF


def read_stream(raw: bytes) -> list[tuple[int, dict[str, str], Points]]:
    """(number of the query, labels, samples) of each frame, whose length and checksum must be right."""
    at, decoded = 0, []
    while at < len(raw):
        size, at = _varint(raw, at)
        body = raw[at + 4 : at + 4 + size]
        assert len(body) == size, "a frame is cut"
        assert checksum(body) == int.from_bytes(raw[at : at + 4], "big")
        decoded.append(_frame(body))
        at += 4 + size
    return decoded


def _frame(body: bytes) -> tuple[int, dict[str, str], Points]:
    parts = _fields(body)
    [series] = [_fields(value) for field, value in parts if field == 1]
    labels = [[each.decode() for _, each in _fields(value)] for field, value in series if field == 1]
    points: Points = []
    for chunk in (dict(_fields(value)) for field, value in series if field == 2):
        of_chunk = points_of(chunk[4])
        first, last = (number - (1 << 64) if number >> 63 else number for number in (chunk[1], chunk[2]))
        assert (first, last, chunk[3]) == (of_chunk[0][0], of_chunk[-1][0], 1)
        points += of_chunk
    return dict(parts).get(2, 0), dict(labels), points


def _fields(raw: bytes) -> list[tuple[int, Any]]:
    decoded: list[tuple[int, Any]] = []
    at = 0
    while at < len(raw):
        tag, at = _varint(raw, at)
        value, at = _varint(raw, at)
        if tag & 7 == 2:
            decoded.append((tag >> 3, raw[at : at + value]))
            at += value
        else:
            decoded.append((tag >> 3, value))
    return decoded


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    decoded = shift = 0
    while True:
        byte, at = raw[at], at + 1
        decoded, shift = decoded | (byte & 127) << shift, shift + 7
        if byte < 128:
            return decoded, at
