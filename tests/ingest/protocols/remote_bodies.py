"""Requests of remote write by a small independent encoder, and the fleet of test hosts in that form."""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

Pair = tuple[str, str]
Shown = tuple[Sequence[Pair], float, int]  # an exemplar: labels, value, time in ms


def varint(value: int) -> bytes:
    """A number, as two's complement of 64 bits where it is negative."""
    value %= 1 << 64
    digits = []
    while True:
        value, low = divmod(value, 128)
        digits.append(low + (128 if value else 0))
        if not value:
            return bytes(digits)


def part(number: int, content: bytes | str) -> bytes:
    """A field of bytes."""
    raw = content.encode() if isinstance(content, str) else content
    return varint(8 * number + 2) + varint(len(raw)) + raw


def whole(number: int, value: int) -> bytes:
    """A field that is a varint."""
    return varint(8 * number) + varint(value)


def real(number: int, value: float) -> bytes:
    """A field that is a double."""
    return varint(8 * number + 1) + struct.pack("<d", value)


def bits(number: int, value: int) -> bytes:
    """A field of 64 fixed bits."""
    return varint(8 * number + 1) + struct.pack("<Q", value % (1 << 64))


@dataclass
class Series:
    """What one entry of a request holds."""

    labels: Sequence[Pair]
    samples: Sequence[tuple[int, float]] = ()
    exemplars: Sequence[Shown] = ()
    histograms: int = 0
    metadata: tuple[int, str, str] | None = None
    extra: list[bytes] = field(default_factory=list)


def sample(ts: int, value: float) -> bytes:
    """One sample; zeros are left out, as encoders do."""
    head = real(1, value) if struct.pack("<d", value) != bytes(8) else b""
    return head + (whole(2, ts) if ts else b"")


def label(name: str, value: str) -> bytes:
    """One label of 1.0."""
    return (part(1, name) if name else b"") + (part(2, value) if value else b"")


def request(series: Iterable[Series], metadata: Iterable[tuple[int, str, str, str]] = ()) -> bytes:
    """A request of 1.0."""
    body = b""
    parts = []
    for one in series:
        inner = [part(1, label(*pair)) for pair in one.labels]
        inner += [part(2, sample(*pair)) for pair in one.samples]
        inner += [
            part(3, b"".join(part(1, label(*pair)) for pair in labels) + real(2, value) + whole(3, ts))
            for labels, value, ts in one.exemplars
        ]
        inner += [part(4, whole(1, 3) + real(3, 2.5))] * one.histograms
        parts.append(part(1, b"".join(inner + one.extra)))
    for kind, metric, text, unit in metadata:
        parts.append(part(3, whole(1, kind) + part(2, metric) + part(4, text) + part(5, unit)))
    return body + b"".join(parts)


def request_v2(series: Iterable[Series], *, packed: bool = True) -> bytes:
    """A request of 2.0."""
    symbols = {"": 0}

    def number(text: str) -> int:
        return symbols.setdefault(text, len(symbols))

    parts = []
    for one in series:
        refs = [number(text) for pair in one.labels for text in pair]
        inner = [part(1, b"".join(map(varint, refs)))] if packed else [whole(1, ref) for ref in refs]
        inner += [part(2, sample(*pair)) for pair in one.samples]
        inner += [part(3, whole(1, 3) + real(3, 2.5))] * one.histograms
        for labels, value, ts in one.exemplars:
            refs = [number(text) for pair in labels for text in pair]
            encoded = part(1, b"".join(map(varint, refs))) if packed else b"".join(whole(1, ref) for ref in refs)
            inner.append(part(4, encoded + real(2, value) + whole(3, ts)))
        if one.metadata:
            kind, text, unit = one.metadata
            inner.append(part(5, whole(1, kind) + whole(3, number(text)) + whole(4, number(unit))))
        parts.append(part(5, b"".join(inner + one.extra)))
    return b"".join([*(part(4, text) for text in symbols), *parts])
