"""Claims about spm/store/ledger/commit_columns.py: cells opened at once say what each says alone; damage stays where it
is.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spm.errors import CorruptBlock
from spm.limits import HOUR_MS
from spm.store.encoding import blocks, codec
from spm.store.encoding.blocks import Messages
from spm.store.ledger import commit_records
from spm.store.ledger.commit_columns import CommitCell, CommitCellCache, open_cells
from spm.store.ledger.commit_records import BatchRows, Commit
from tests.golden.make import FOLDER

MS = 1_699_300_000_000


def commit(count: int, *, seed: int = 0, totals: bool = False, epoch: int | None = None) -> Commit:
    """Some messages of three sources in two rows."""
    draw = np.random.default_rng(seed)
    table = Messages(
        MS + draw.integers(0, 10**6, count),
        draw.integers(1, 2**32, count),
        draw.integers(0, 2**16, count),
        draw.integers(0, 3, count).astype(np.int32),
        ("a", "ü", "c"),
    )
    ids = draw.integers(0, 256, 16 * count).astype(np.uint8)
    drawn = draw.integers(0, 99, count) if totals else None
    return Commit(
        table, draw.integers(1, 10**9, count), ids, MS, MS + seed, BatchRows.of([(1, 2), (200, 3)]), drawn, epoch
    )


def said(cell: CommitCell | CorruptBlock) -> Any:
    """What a cell says, as plain things; that it is damaged, if it is."""
    if isinstance(cell, CorruptBlock):
        return "damaged"
    m = cell.messages
    columns = (m.ms, m.process, m.sequence, m.source, cell.samples, cell.message_ids.ravel())
    plain = [column.astype(np.int64).tolist() for column in columns]
    totals = None if cell.totals is None else cell.totals.tolist()
    return plain, m.sources, totals, cell.outcome, cell.hour, cell.rows, cell.batch, cell.epoch


def alone(raw: bytes, kind: int) -> Any:
    """The same by the decoder that takes one at a time."""
    try:
        c, outcome, batch = commit_records.decode_ledger_row(raw, kind)
    except CorruptBlock:
        return "damaged"
    m = c.messages
    plain = [x.astype(np.int64).tolist() for x in (m.ms, m.process, m.sequence, m.source, c.samples, c.message_ids)]
    totals = None if c.totals is None else c.totals.tolist()
    return plain, m.sources, totals, outcome, (c.ts_max - 1) // HOUR_MS, len(c.rows), batch, c.epoch


@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.booleans(), st.sampled_from([None, 0, 3]), st.integers(-1, 10**6)), max_size=12
    )
)
@settings(max_examples=60, deadline=None)
def test_many_cells_decode_as_each_does_alone_whichever_are_damaged(
    cells: list[tuple[int, bool, int | None, int]],
) -> None:
    raws = []
    for number, (count, totals, epoch, bit) in enumerate(cells):
        record = commit(count, seed=number, totals=totals, epoch=epoch)
        raw = bytearray(commit_records.encode(record, blocks.LEDGER, number % 5, batch=2**64 - 1 - number))
        if bit >= 0:
            raw[bit // 8 % len(raw)] ^= 1 << bit % 8
        raws.append(bytes(raw))
    wanted = [alone(raw, blocks.LEDGER) for raw in raws]
    assert [said(cell) for cell in open_cells(raws, blocks.LEDGER)] == wanted
    assert [said(cell) for cell in CommitCellCache().open(raws, blocks.LEDGER)] == wanted


@pytest.mark.parametrize(
    "name",
    ["ledger/pending-1", "ledger/pending-2", "ledger/pending-2-epoch", "ledger/ledger-1", "ledger/ledger-2-totals"],
)
def test_cells_of_every_form_are_opened(name: str) -> None:
    raw = (FOLDER / f"{name}.bin").read_bytes()
    assert said(*open_cells([raw], raw[0])) == alone(raw, raw[0])


def without(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda columns: columns.pop(name)


def put(name: str, column: np.ndarray) -> Callable[[dict[str, Any]], None]:
    return lambda columns: columns.update({name: column})


@pytest.mark.parametrize(
    "spoil",
    [
        *(without(name) for name in ("ms", "samples", "id_hash", "range", "batch_hash", "bucket")),
        put("samples", np.ones(4, np.int64)),
        put("samples", np.ones(5, np.float64)),
        put("id_hash", np.zeros(17, np.uint8)),
        put("range", np.zeros(2, np.int64)),
        put("total", np.zeros(4, np.int64)),
        put("source", np.array([0, 1, 3, 0, 0], np.int32)),
        put("source", np.array([0, 1, -1, 0, 0], np.int32)),
        put("epoch", np.zeros(0, np.int64)),
    ],
    ids=[
        "no times",
        "no samples",
        "no ids",
        "no range",
        "no batch",
        "no rows",
        "fewer samples",
        "other samples",
        "ids too long",
        "half a range",
        "fewer totals",
        "a source too many",
        "a source below zero",
        "an empty epoch",
    ],
)
def test_a_cell_of_a_wrong_shape_is_damaged_and_the_next_is_not(spoil: Callable[[dict[str, Any]], None]) -> None:
    good = commit_records.encode(commit(5))
    c, texts = blocks.decode_columns(blocks.PENDING, good)
    spoil(c)
    bad = blocks.encode_columns(blocks.PENDING, c, texts)
    results = [said(cell) for cell in open_cells([good, bad, good], blocks.PENDING)]
    assert results == [alone(good, blocks.PENDING), "damaged", alone(good, blocks.PENDING)]


def test_a_column_that_does_not_unpack_is_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    good = commit_records.encode(commit(5))
    texts, packed = blocks.packed_columns(blocks.PENDING, good)
    torn = {
        name: (*column[:4], column[4][:-1] if column[0] == codec.PCO else column[4]) for name, column in packed.items()
    }
    monkeypatch.setattr(blocks, "packed_columns", lambda kind, raw: (texts, torn if raw == b"torn" else packed))
    assert [said(cell) for cell in open_cells([b"torn", good], blocks.PENDING)] == [
        "damaged",
        alone(good, blocks.PENDING),
    ]


def test_cached_columns_hold_no_bytes_of_other_cells() -> None:
    raws = [commit_records.encode(commit(40, seed=number)) for number in range(3)]
    for cell in CommitCellCache().open(raws, blocks.PENDING):
        assert isinstance(cell, CommitCell)
        assert cell.messages.ms.base is None
