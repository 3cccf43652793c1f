"""What a store must be able to do: ordered rows of named cells, durable writes, and one atomic act.

Four implementations: memory (tests), LMDB (the embedded default), HBase (the full stack), and any a test wraps around
them. The contract is ``tests/contracts/test_backends.py``. Nothing here knows what a key means, and no caller relies on
row timestamps or on atomicity across rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

Cells = Mapping[bytes, bytes]
RowPut = tuple[bytes, Cells]
Row = tuple[bytes, dict[bytes, bytes]]
Step = tuple[str, Sequence[RowPut]]


class Reader(Protocol):
    """The reading half: what a snapshot offers.

    One that can tell has a ``version`` too: whatever others of the same number answer, it answers.
    """

    def get(
        self, table: str, keys: Sequence[bytes], columns: Sequence[bytes] | None = None
    ) -> list[dict[bytes, bytes] | None]:
        """The rows of ``keys`` in their order; ``None`` where there is no row (or none of ``columns`` in it)."""

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
        """Rows with ``start`` ≤ key < ``stop`` in key order; with ``keys_only`` their cells are left out ({})."""


def version_of(reader: Reader) -> int | None:
    """The version of what a reader shows; ``None`` where it cannot tell."""
    return getattr(reader, "version", None)


class Backend(Reader, Protocol):
    """An ordered store. All calls raise ``StoreUnavailable`` when the outcome is unknown: repeat the same bytes."""

    def put(self, steps: Sequence[Step]) -> None:
        """Write rows table by table, in order; each step is durable before the next begins, all on return.

        A row is written whole or not at all. Doing it twice equals doing it once, by the rows' keys.
        """

    def check_and_put(self, table: str, key: bytes, column: bytes, expected: bytes | None, value: bytes) -> bool:
        """Set one cell iff it now holds ``expected`` (``None``: iff it is absent); whether it was set."""

    def check_and_put_many(self, table: str, column: bytes, rows: Sequence[tuple[bytes, bytes]]) -> list[bytes | None]:
        """For each (key, value): set the cell if absent. Answers what stood there before; ``None``: ours went in."""

    def delete(self, table: str, cells: Sequence[tuple[bytes, Sequence[bytes] | None]]) -> None:
        """Remove these cells; ``None`` instead of column names removes the whole row. Absent ones are no error."""

    def snapshot(self) -> AbstractContextManager[Reader]:
        """A reader for one query: one read transaction where the store has such, else the store itself."""

    def close(self) -> None:
        """Give back what the process holds of the store."""
