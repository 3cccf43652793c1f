"""The interface of a store: ordered rows of named cells, durable writes, and one atomic operation.

Implementations: memory (tests), LMDB (the embedded default), HBase (the full stack), and wrappers in tests. The
contract is ``tests/contracts/test_backends.py``. A back end does not know the meaning of keys, and no caller relies on
row timestamps or on atomicity across rows.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from typing import Protocol, runtime_checkable

Cells = Mapping[bytes, bytes]
RowPut = tuple[bytes, Cells]
Row = tuple[bytes, dict[bytes, bytes]]
Step = tuple[str, Sequence[RowPut]]
Range = tuple[bytes, bytes]


class Reader(Protocol):
    """The reading calls, which a snapshot has too.

    Some readers also have a ``version``: two readers of one version return equal rows.
    """

    def get(
        self, table: str, keys: Sequence[bytes], columns: Sequence[bytes] | None = None
    ) -> list[dict[bytes, bytes] | None]:
        """Read the rows of ``keys`` in their order; ``None`` where there is no row (or none of ``columns`` in it)."""

    def scan(
        self,
        table: str,
        start: bytes,
        stop: bytes,
        *,
        columns: Sequence[bytes] | None = None,
        keys_only: bool = False,
        limit: int | None = None,
    ) -> Iterator[Row]:
        """Yield rows with ``start`` ≤ key < ``stop`` in key order; with ``keys_only`` without their cells ({})."""


def version_of(reader: Reader) -> int | None:
    """The version of a reader; ``None`` if it has none."""
    return getattr(reader, "version", None)


@runtime_checkable
class ParallelReader(Protocol):
    """A reader with costly calls (HBase), which reads ahead in the next ranges, in bounded memory."""

    def scan_ranges(
        self, table: str, ranges: Sequence[Range], *, columns: Sequence[bytes] | None = None, keys_only: bool = False
    ) -> Iterator[Row]:
        """Yield the rows of all ranges, in the order of the ranges and, within each, of their keys."""


@runtime_checkable
class CopyableBackend(Protocol):
    """A store that copies itself as of one moment, while others write."""

    def used_bytes(self) -> int:
        """Return how large a copy is at most."""

    def copy_to(self, folder: str, watch: Callable[[int], None]) -> None:
        """Write a compact copy, which can be opened, into an empty folder; ``watch`` hears of the bytes written."""


class UnreachableCells(Protocol):
    """Cells of a table that cannot be reached, between two that can; ``None``: to the table's begin or end."""

    @property
    def table(self) -> str: ...

    @property
    def after(self) -> bytes | None: ...

    @property
    def until(self) -> bytes | None: ...


@runtime_checkable
class SalvageableBackend(Protocol):
    """A store that can be read around damage of its own, which otherwise would end the process."""

    def pass_by_damage(self) -> Sequence[UnreachableCells]:
        """Find the cells that cannot be reached; reads of this object pass them by from now on, as if absent."""


def scan_ranges(
    reader: Reader,
    table: str,
    ranges: Sequence[Range],
    *,
    columns: Sequence[bytes] | None = None,
    keys_only: bool = False,
) -> Iterator[Row]:
    """Scan several key ranges as one (all shards of an app): the rows of one range after the other."""
    if isinstance(reader, ParallelReader):
        return reader.scan_ranges(table, ranges, columns=columns, keys_only=keys_only)
    scans = (reader.scan(table, start, stop, columns=columns, keys_only=keys_only) for start, stop in ranges)
    return chain.from_iterable(scans)


class Backend(Reader, Protocol):
    """An ordered store. All calls raise ``StoreUnavailable`` when the outcome is unknown: repeat the same bytes."""

    def put(self, steps: Sequence[Step]) -> None:
        """Write rows table by table, in order; each step is durable before the next begins, all when it returns.

        Each row is written completely or not at all. Because of the rows' keys, a repeated put changes nothing.
        """

    def check_and_put(self, table: str, key: bytes, column: bytes, expected: bytes | None, value: bytes) -> bool:
        """Set one cell if it holds ``expected`` (``None``: if it is absent); return whether it was set."""

    def check_and_put_many(self, table: str, column: bytes, rows: Sequence[tuple[bytes, bytes]]) -> list[bytes | None]:
        """Set the cell of each (key, value) if it is absent; return the former values, ``None`` where it was set."""

    def put_new(
        self, table: str, column: bytes, rows: Sequence[tuple[bytes, bytes]], steps: Sequence[Step]
    ) -> list[bytes | None]:
        """Set the cell of each (key, value) if it is absent, then put the steps; return the former values of the cells.

        A store that has transactions puts the last cells and the first steps in one. The steps are not put if a cell
        holds another value.
        """

    def put_then_get(
        self, steps: Sequence[Step], table: str, keys: Sequence[bytes], columns: Sequence[bytes]
    ) -> list[dict[bytes, bytes] | None]:
        """Put the steps, then read rows as ``get`` does; a store that has transactions does both in one."""

    def delete(self, table: str, cells: Sequence[tuple[bytes, Sequence[bytes] | None]]) -> None:
        """Delete these cells; ``None`` instead of column names deletes the whole row. Absent cells are no error."""

    def snapshot(self) -> AbstractContextManager[Reader]:
        """A reader for one query: one read transaction where the store has transactions, else the store itself."""

    def close(self) -> None:
        """Release the process's connections and files."""


def put_new_apart(
    backend: Backend, table: str, column: bytes, rows: Sequence[tuple[bytes, bytes]], steps: Sequence[Step]
) -> list[bytes | None]:
    """``put_new`` of a store that has no transactions: the cells first, then the steps."""
    before = backend.check_and_put_many(table, column, rows)
    if not taken(rows, before):
        backend.put(steps)
    return before


def put_then_get_apart(
    backend: Backend, steps: Sequence[Step], table: str, keys: Sequence[bytes], columns: Sequence[bytes]
) -> list[dict[bytes, bytes] | None]:
    """``put_then_get`` of a store that has no transactions: two calls."""
    backend.put(steps)
    return backend.get(table, keys, columns)


def taken(rows: Sequence[tuple[bytes, bytes]], before: Sequence[bytes | None]) -> list[int]:
    """The places of those rows whose cell held another value before."""
    pairs = zip(rows, before, strict=True)
    return [place for place, ((_, value), was) in enumerate(pairs) if was is not None and was != value]
