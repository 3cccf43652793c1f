"""Reads the exemplars of remote write, 1.0 and 2.0, which come in the series that the kernels leave to Python.

Enter by ``read_exemplars``. Damage inside of an exemplar costs this exemplar alone.
"""

import struct
from collections.abc import Callable, Mapping

import numpy as np

from ingest.protocols.common.exemplars import TOO_MANY, UNREADABLE, ExemplarCollector
from ingest.protocols.common.protobuf import read_byte_fields, read_fields, read_varints
from ingest.protocols.common.protobuf_kernels import BYTES, FIXED64, VARINT
from ingest.protocols.common.series_cache import LabelPairs
from ingest.protocols.prometheus.remote_write_kernels import Spans, read_spans
from spm.arrays import U8
from spm.errors import BadMessage
from spm.limits import LABELS_MAX

_WHAT = "an exemplar of remote write"
_SERIES_FIELD, _EXEMPLAR_FIELD = {1: 1, 2: 5}, {1: 3, 2: 4}  # by the version of remote write
_LABELS, _VALUE, _TIME = 1, 2, 3  # fields of an exemplar in both versions


class _Unreadable(Exception):
    """An exemplar is no such message."""


def read_exemplars(
    raw: U8,
    version: int,
    counts: Mapping[int, tuple[bytes, int]],
    symbol: Callable[[int], bytes | None],
    collector: ExemplarCollector,
) -> None:
    """Read the exemplars of a request into ``collector``.

    ``counts``: the canonical form of each series that has some, and their number, by its place in ascending order.
    ``symbol`` returns a text of the table of 2.0, ``None`` for one that is not in it.
    """
    series: Spans = np.empty((max(counts) + 1, 2), np.int64)
    read_spans(raw, _SERIES_FIELD[version], series)
    for place, (form, count) in counts.items():
        taken = min(count, max(collector.room, 0))
        collector.refuse(TOO_MANY, count - taken)
        start, end = series[place].tolist()
        spans: Spans = np.empty((taken, 2), np.int64)
        read_spans(raw[start:end], _EXEMPLAR_FIELD[version], spans)
        for first, last in (spans + start).tolist():
            try:
                ts, value, labels = _read(raw[first:last].tobytes(), version, symbol)
            except (BadMessage, _Unreadable):
                collector.refuse(UNREADABLE)
            else:
                collector.add(form, ts, value, labels)


def _read(raw: bytes, version: int, symbol: Callable[[int], bytes | None]) -> tuple[int, float, LabelPairs]:
    """Return time, value and labels of an exemplar."""
    ts, value, labels, refs = 0, 0.0, list[tuple[bytes, bytes]](), list[int]()
    for number, wire_type, content in read_fields(raw, _WHAT):
        if number == _TIME and isinstance(content, int):
            ts = content - (1 << 64) if content >> 63 else content
        elif number == _VALUE and wire_type == FIXED64 and isinstance(content, bytes):
            [value] = struct.unpack("<d", content)
        elif number == _LABELS and version == 1 and wire_type == BYTES and isinstance(content, bytes):
            pair = read_byte_fields(content, _WHAT)
            labels.append((pair.get(1, b""), pair.get(2, b"")))
        elif number == _LABELS and version == 2 and wire_type in (VARINT, BYTES):
            refs += [content] if isinstance(content, int) else read_varints(content, _WHAT)
        if len(labels) + len(refs) > 2 * LABELS_MAX:
            raise _Unreadable
    return ts, value, labels if version == 1 else _labels_of(refs, symbol)


def _labels_of(refs: list[int], symbol: Callable[[int], bytes | None]) -> LabelPairs:
    texts = [text for text in map(symbol, refs) if text is not None]
    if len(texts) < len(refs) or len(refs) % 2:
        raise _Unreadable
    return list(zip(texts[::2], texts[1::2], strict=True))
