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
        found = shift = 0
        while True:
            byte = self.take(8)
            found, shift = found | (byte & 127) << shift, shift + 7
            if byte < 128:
                return found


def points_of(chunk: bytes) -> Points:
    """The samples of one chunk."""
    bits = _Bits(chunk)
    count, first = bits.take(16), bits.varint()
    at, value = first >> 1 ^ -(first & 1), bits.take(64)
    found, distance, leading, trailing = [(at, value)], 0, 0, 0
    for number in range(1, count):
        distance = bits.varint() if number == 1 else distance + _change(bits)
        at += distance
        if bits.take(1):
            if bits.take(1):
                leading = bits.take(5)
                trailing = 64 - leading - (bits.take(6) or 64)
            value ^= bits.take(64 - leading - trailing) << trailing
        found.append((at, value))
    return found


def _change(bits: _Bits) -> int:
    ones = 0
    while ones < 4 and bits.take(1):
        ones += 1
    width = _WIDTHS[ones]
    found = bits.take(width)
    half = 1 << width - 1 if width else 0
    wraps = found >= half if width == 64 else found > half  # a short one may be as much as half
    return found - (1 << width) if width and wraps else found


def checksum(raw: bytes) -> int:
    """CRC-32C, a bit at a time."""
    found = 0xFFFFFFFF
    for byte in raw:
        found ^= byte
        for _ in range(8):
            found = found >> 1 ^ (0x82F63B78 if found & 1 else 0)
    return found ^ 0xFFFFFFFF


def read_stream(raw: bytes) -> list[tuple[int, dict[str, str], Points]]:
    """(number of the query, labels, samples) of each frame, whose length and checksum must be right."""
    at, found = 0, []
    while at < len(raw):
        size, at = _varint(raw, at)
        body = raw[at + 4 : at + 4 + size]
        assert len(body) == size, "a frame is cut"
        assert checksum(body) == int.from_bytes(raw[at : at + 4], "big")
        found.append(_frame(body))
        at += 4 + size
    return found


def _frame(body: bytes) -> tuple[int, dict[str, str], Points]:
    parts = _fields(body)
    [series] = [_fields(value) for field, value in parts if field == 1]
    labels = [[each.decode() for _, each in _fields(value)] for field, value in series if field == 1]
    points: Points = []
    for chunk in (dict(_fields(value)) for field, value in series if field == 2):
        held = points_of(chunk[4])
        first, last = (number - (1 << 64) if number >> 63 else number for number in (chunk[1], chunk[2]))
        assert (first, last, chunk[3]) == (held[0][0], held[-1][0], 1)
        points += held
    return dict(parts).get(2, 0), dict(labels), points


def _fields(raw: bytes) -> list[tuple[int, Any]]:
    found: list[tuple[int, Any]] = []
    at = 0
    while at < len(raw):
        tag, at = _varint(raw, at)
        value, at = _varint(raw, at)
        if tag & 7 == 2:
            found.append((tag >> 3, raw[at : at + value]))
            at += value
        else:
            found.append((tag >> 3, value))
    return found


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    found = shift = 0
    while True:
        byte, at = raw[at], at + 1
        found, shift = found | (byte & 127) << shift, shift + 7
        if byte < 128:
            return found, at
