"""A store with a page of zeros in one of its trees: reads go around it, where LMDB itself would end the process."""

import os
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from spm.store.backends.lmdb import LmdbBackend
from spm.store.backends.lmdb_gaps import Gap

BRANCH, LEAF, PAGE = 1, 2, 4096
TABLES = {"log": 25, "inputs": 17, "marks": 8}
COUNT = 3_000


def row_key(table: str, number: int) -> bytes:
    return number.to_bytes(TABLES[table], "big")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The file of a store with three tables, whose trees have inner pages."""
    backend = LmdbBackend(str(tmp_path / "store"))
    random = Random(7)
    for table in TABLES:
        rows = [(row_key(table, n), {b"a": random.randbytes(150), b"b": random.randbytes(150)}) for n in range(COUNT)]
        backend.put([(table, rows)])
    backend.close()
    return tmp_path / "store" / "data.mdb"


def pages(file: Path, kind: int) -> list[int]:
    """The pages that hold keys of this kind, the root of a tree among them."""
    raw = file.read_bytes()
    numbers = [
        page for page in range(2, len(raw) // PAGE) if struct.unpack_from("<H", raw, page * PAGE + 10)[0] == kind
    ]
    return [page for page in numbers if struct.unpack_from("<Q", raw, page * PAGE)[0] == page]


def in_a_child(act: Callable[[], None]) -> int:
    """Return how a child ended that did this: 0 if it came to its end, or the signal that ended it."""
    child = os.fork()
    if child == 0:
        try:
            act()
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(99)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def read_around(file: Path) -> None:
    """Read every row in every way; each is there but for those in the gaps, which are few."""
    backend = LmdbBackend(str(file.parent))
    gaps = backend.pass_by_damage()
    lost = 0
    for table in TABLES:
        here = [gap for gap in gaps if gap.table == table]
        expected = {n for n in range(COUNT) if not any(_touches(gap, row_key(table, n)) for gap in here)}
        scanned = {
            int.from_bytes(key, "big") for key, cells in backend.scan(table, b"", b"\xff" * 40) if len(cells) == 2
        }
        names = {int.from_bytes(key, "big") for key, _ in backend.scan(table, b"", b"\xff" * 40, keys_only=True)}
        got = {n for n in range(COUNT) if len(backend.get(table, [row_key(table, n)])[0] or {}) == 2}
        assert scanned == got == expected
        assert expected <= names
        for n in range(0, COUNT, 97):
            backend.get(table, [row_key(table, n)], [b"a"])
            list(backend.scan(table, row_key(table, n), row_key(table, n + 40)))
        lost += COUNT - len(expected)
    assert gaps
    assert 0 < lost <= COUNT


def _touches(gap: Gap, key: bytes) -> bool:
    return gap.holds(key + b"a") or gap.holds(key + b"b")


@pytest.mark.parametrize("kind", [BRANCH, LEAF])
def test_reads_go_around_a_page_of_zeros(file: Path, kind: int) -> None:
    whole = file.read_bytes()
    damaged = pages(file, kind)
    for page in damaged if kind == BRANCH else damaged[1 :: len(damaged) // 12]:
        with file.open("r+b") as opened:
            opened.seek(page * PAGE)
            opened.write(bytes(PAGE))
        assert in_a_child(lambda: read_around(file)) == 0, page
        file.write_bytes(whole)


def test_several_pages_make_several_gaps(file: Path) -> None:
    leaves = pages(file, LEAF)
    with file.open("r+b") as opened:
        for page in leaves[5 :: len(leaves) // 4]:
            opened.seek(page * PAGE)
            opened.write(bytes(PAGE))
    assert in_a_child(lambda: read_around(file)) == 0


def test_a_whole_file_has_no_gap(file: Path) -> None:
    backend = LmdbBackend(str(file.parent))
    assert backend.pass_by_damage() == []
    assert len(list(backend.scan("log", b"", b"\xff" * 40))) == COUNT
    backend.close()
