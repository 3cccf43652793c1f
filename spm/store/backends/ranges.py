"""Scans several key ranges as one: all shards of an app, all salts of a table.

``scan_ranges`` yields the rows of one range after the other, so in key order where the ranges are in order. A reader
with costly calls (``Parallel``, such as HBase) reads ahead in the next ranges; any other is scanned range by range,
which costs nothing extra.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Protocol, runtime_checkable

from spm.store.backends.base import Reader, Row

Range = tuple[bytes, bytes]


@runtime_checkable
class Parallel(Protocol):
    """A reader that can scan several ranges at once, in bounded memory."""

    def scan_ranges(
        self, table: str, ranges: Sequence[Range], *, columns: Sequence[bytes] | None = None, keys_only: bool = False
    ) -> Iterator[Row]:
        """Yield the rows of all ranges, in the order of the ranges and, within each, of their keys."""


def scan_ranges(
    reader: Reader,
    table: str,
    ranges: Sequence[Range],
    *,
    columns: Sequence[bytes] | None = None,
    keys_only: bool = False,
) -> Iterator[Row]:
    """Yield the rows of all ranges, in the order of the ranges and, within each, of their keys."""
    if isinstance(reader, Parallel):
        return reader.scan_ranges(table, ranges, columns=columns, keys_only=keys_only)
    scans = (reader.scan(table, start, stop, columns=columns, keys_only=keys_only) for start, stop in ranges)
    return chain.from_iterable(scans)
