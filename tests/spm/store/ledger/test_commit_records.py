"""Claims about spm/store/ledger/commit_records.py: commit records and ledger rows."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spm.errors import CorruptBlock
from spm.store.backends.memory import MemoryBackend
from spm.store.encoding import blocks
from spm.store.keys import PendingKey, hour_column
from spm.store.ledger import commit_records
from spm.store.ledger.commit_records import BatchRows, Commit
from spm.wire import Stamp
from tests.support.rows import START, envelope, messages, stored

STAMP = st.builds(Stamp, st.integers(0, 2**48 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**16 - 1))
ROWS = st.lists(st.tuples(st.integers(0, 255), st.integers(0, 2**32 - 1)), max_size=9).map(tuple)


def facts(commit: Commit) -> tuple[object, ...]:
    m = commit.messages
    columns = (m.ms, m.process, m.sequence, m.source, commit.samples, commit.message_ids)
    return (*(c.tolist() for c in columns), m.sources, commit.ts_min, commit.ts_max, commit.rows.names())


@given(
    st.lists(STAMP, min_size=1, max_size=5),
    ROWS,
    st.integers(-(2**62), 2**62),
    st.sampled_from([0, 1, 2]),
    st.integers(0, 2**64 - 1),
)
def test_a_commit_comes_back_with_its_outcome_and_batch(
    stamps: list[Stamp], rows: tuple[tuple[int, int], ...], ts: int, outcome: int, batch: int
) -> None:
    ids = np.arange(16 * len(stamps), dtype=np.uint8)
    commit = Commit(messages(stamps), np.arange(len(stamps)), ids, ts, ts + 5, BatchRows.of(rows))
    got, *rest = commit_records.decode_ledger_row(commit_records.encode(commit, blocks.LEDGER, outcome, batch))
    assert (facts(got), rest) == (facts(commit), [outcome, batch])
    assert (got.stamp_min_ms, got.stamp_max_ms) == (min(s.ms for s in stamps), max(s.ms for s in stamps))
    assert got.sample_count == sum(range(len(stamps)))


def test_a_pending_cell_is_not_taken_for_a_ledger_row() -> None:
    commit = Commit(messages([Stamp(1, 1, 1)]), np.array([1]), np.zeros(16, np.uint8), 1, 2, BatchRows.of(()))
    with pytest.raises(CorruptBlock, match="another kind"):
        commit_records.decode_ledger_row(commit_records.encode(commit))


def test_ids_that_are_not_sixteen_bytes_each_are_damage() -> None:
    commit = Commit(messages([Stamp(1, 1, 1)]), np.array([1]), np.zeros(15, np.uint8), 1, 2, BatchRows.of(()))
    with pytest.raises(CorruptBlock, match="differ in length"):
        commit_records.decode(commit_records.encode(commit))


def test_a_scan_lists_every_cell_of_the_app_newest_record_first() -> None:
    backend = MemoryBackend()
    backend.put(
        [
            (
                "pending",
                [(PendingKey(3, 7, ms, ms).to_bytes(), {hour_column(s): b"%d" % s for s in (8, 9)}) for ms in (5, 6)],
            )
        ]
    )
    backend.put([("pending", [(PendingKey(3, 8, 5, 5).to_bytes(), {hour_column(8): b"other"})])])
    listed = list(commit_records.scan(backend, 7, [3, 4]))
    assert [(item.key.ingest_ms, item.hour, item.cell) for item in listed] == [
        (6, 8, b"8"),
        (6, 9, b"9"),
        (5, 8, b"8"),
        (5, 9, b"9"),
    ]


def test_every_cell_of_a_batch_names_all_rows_of_the_batch() -> None:
    backend = stored(envelope([(s, START + h * 3_600_000 + 5, 1.0) for s in range(6) for h in range(3)]), spread=4)
    cells = [
        commit_records.decode(cell) for _, row in backend.scan("pending", b"", b"\xff" * 30) for cell in row.values()
    ]
    assert len({c.rows for c in cells}) == 1
    assert len(cells[0].rows) == len(cells) == len(list(backend.scan("log", b"", b"\xff" * 30)))
    assert sum(c.sample_count for c in cells) == 18


def test_a_decoded_cell_of_a_wide_batch_keeps_no_list_of_its_rows() -> None:
    """Lists of 40,000 rows in each of 40,000 cells: the run that compacted them would have taken 100 GB."""
    rows = [(shard, hour) for hour in range(2_500) for shard in range(16)]
    commit = Commit(messages([Stamp(1, 1, 1)]), np.array([1]), np.zeros(16, np.uint8), 1, 2, BatchRows.of(rows))
    raw = commit_records.encode(commit)
    got = commit_records.decode(raw).rows
    assert (len(got), len(raw) < 400, len(pickle.dumps(got)) < 400) == (len(rows), True, True)
    assert set(got.names()) == {(0, 0)}
