"""Which cells of an LMDB file cannot be reached, since pages of its trees are damaged, and cursors that pass them by.

LMDB checks little of what it reads: a cursor that walks into a page of zeros ends the process (an assertion, SIGABRT).
So ``find_gaps`` reads the file itself, page by page, and a ``GapCursor`` never steps into what it found. Cells in large
pages of their own are not looked at: they have checksums of ours. Drawing: ``struct MDB_page`` of LMDB's source.
"""

import mmap
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spm.errors import StoreDamaged

_META = struct.Struct("<II8x8x")  # magic, version; address, size of the map
_META_AT, _DB, _DBS_AT = (
    16,
    struct.Struct("<IHHQQQQQ"),
    40,
)  # a tree: …, its root
_LAST_AT = _DBS_AT + 2 * _DB.size  # number of the last page, id of the transaction
_PAGE = struct.Struct("<QHHHH")  # number, padding, flags, end of the pointers, begin of the nodes
_NODE = struct.Struct("<HHHH")  # size of the value or number of the child, flags (its upper bits), size of the key
_MAGIC, _BRANCH, _LEAF, _TREE, _NONE = 0xBEEFC0DE, 1, 2, 2, 0xFFFF_FFFF_FFFF_FFFF


@dataclass(frozen=True, slots=True)
class Gap:
    """Cells of a table that cannot be reached: ``after`` and ``until`` can; ``None``: to the table's begin or end."""

    table: str
    after: bytes | None
    until: bytes | None

    def holds(self, cell: bytes) -> bool:
        """Whether a cell of this name would be in it."""
        return (self.after is None or cell > self.after) and (self.until is None or cell < self.until)


def find_gaps(file: Path, transaction: int) -> list[Gap] | None:
    """Return the gaps of all tables as of a transaction that is open; ``None`` if the file has a newer state only.

    Raise ``StoreDamaged`` if the list of tables itself cannot be read.
    """
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as raw:
        for size in (4096, 8192, 16384, 32768, 65536):
            for at in (0, size):
                if at + _LAST_AT + 16 > len(raw) or _META.unpack_from(raw, at + _META_AT)[0] != _MAGIC:
                    continue
                last, number = struct.unpack_from("<QQ", raw, at + _LAST_AT)
                if _DB.unpack_from(raw, at + _DBS_AT)[0] == size and number == transaction:
                    return _Pages(raw, size, last).gaps(_DB.unpack_from(raw, at + _DBS_AT + _DB.size)[-1])
    return None


@dataclass(frozen=True, slots=True)
class _Pages:
    """The pages of one state of a file."""

    raw: mmap.mmap
    size: int
    last: int

    def gaps(self, root: int) -> list[Gap]:
        tables = _Walk(self, "")
        roots: list[tuple[str, int]] = []
        tables.walk(root, lambda key, at: roots.append((key.decode(), _DB.unpack_from(self.raw, at)[-1])))
        if tables.finish():
            raise StoreDamaged("the store's list of tables is damaged. Put a copy back that is whole.")
        gaps: list[Gap] = []
        for name, its_root in roots:
            walk = _Walk(self, name)
            walk.walk(its_root)
            gaps += walk.finish()
        return gaps

    def nodes(self, page: int) -> tuple[bool, tuple[int, ...]] | None:
        """Return (whether it is a leaf, the places of its nodes); ``None`` for a page that cannot be right."""
        start = page * self.size
        if not 1 < page <= self.last or start + self.size > len(self.raw):
            return None
        number, _, flags, lower, upper = _PAGE.unpack_from(self.raw, start)
        kind = flags & (_BRANCH | _LEAF)
        if number != page or kind not in (_BRANCH, _LEAF) or not _PAGE.size < lower <= upper <= self.size:
            return None
        places = struct.unpack_from(f"<{(lower - _PAGE.size) // 2}H", self.raw, start + _PAGE.size)
        if min(places) < upper or max(places) > self.size - _NODE.size:
            return None
        return kind == _LEAF, tuple(start + place for place in places)

    def key(self, node: int) -> bytes:
        size = _NODE.unpack_from(self.raw, node)[3]
        return self.raw[node + _NODE.size : node + _NODE.size + size]

    def child(self, node: int) -> int:
        low, high, upper, _ = _NODE.unpack_from(self.raw, node)
        return int(low | high << 16 | upper << 32)


@dataclass(slots=True)
class _Walk:
    """A walk through one tree in the order of its keys."""

    pages: _Pages
    table: str
    passed: list[Gap] = field(default_factory=list)
    newest: bytes | None = None  # the last cell that can be reached
    is_open: bool = False  # whether a gap begins behind it

    def walk(self, page: int, see: Any = None) -> None:
        """Walk from a page on; ``see`` gets the key and the place of the value of each node of a leaf."""
        if page == _NONE:
            return
        nodes = self.pages.nodes(page)
        if nodes is None:
            self.is_open = True
            return
        is_leaf, places = nodes
        if not is_leaf:
            for node in places:
                self.walk(self.pages.child(node), see)
            return
        if self.is_open:
            self.passed.append(Gap(self.table, self.newest, self.pages.key(places[0])))
            self.is_open = False
        self.newest = self.pages.key(places[-1])
        if see is not None:
            for node in places:
                key = self.pages.key(node)
                see(key, node + _NODE.size + len(key))

    def finish(self) -> list[Gap]:
        """Return the gaps, with the one that goes to the end."""
        return [*self.passed, Gap(self.table, self.newest, None)] if self.is_open else self.passed


class GapCursor:
    """A cursor of LMDB that passes gaps by: the calls that snapshots make. What is in a gap is absent."""

    def __init__(self, cursor: Any, gaps: Sequence[Gap]) -> None:
        self._cursor, self._gaps = cursor, gaps
        self._jumps = {gap.after: gap.until for gap in gaps}

    def __enter__(self) -> "GapCursor":
        return self

    def __exit__(self, *_: object) -> None:
        self._cursor.close()

    def get(self, cell: bytes) -> Any:
        return None if self._gap_at(cell) else self._cursor.get(cell)

    def getmulti(self, cells: Sequence[bytes]) -> Any:
        return self._cursor.getmulti([cell for cell in cells if not self._gap_at(cell)])

    def set_range(self, cell: bytes) -> bool:
        gap = self._gap_at(cell)
        if gap is None:
            return bool(self._cursor.set_range(cell))
        return gap.until is not None and bool(self._cursor.set_range(gap.until))

    def iternext(self, keys: bool = True, values: bool = True) -> Iterator[Any]:
        while True:
            for item in self._cursor.iternext(keys=keys, values=values):
                cell = item[0] if values else item
                yield item
                if cell in self._jumps:
                    break
            else:
                return
            until = self._jumps[cell]
            if until is None or not self._cursor.set_range(until):
                return

    def _gap_at(self, cell: bytes) -> Gap | None:
        return next((gap for gap in self._gaps if gap.holds(cell)), None)
