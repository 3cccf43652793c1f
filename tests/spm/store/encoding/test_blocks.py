"""Claims about spm/store/encoding/blocks.py: frames, blocks and records; damage of any kind is found."""

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spm.errors import CorruptBlock, LimitExceeded
from spm.store import manifest
from spm.store.encoding import blocks
from spm.store.encoding.blocks import LogBlock, Messages, TimelinesPage
from spm.store.encoding.chunk_page import ChunkPage
from spm.store.ledger import commit_records, dead_letters
from spm.store.ledger.commit_records import BatchRows, Commit
from spm.store.manifest import Entry, Generation, HourInputs, HourPack, Manifest, Month, Replay, State
from spm.store.rollup import rows as rollup_rows
from spm.store.rollup.aggregates import Aggregates
from spm.store.versions.generations import Inputs, decode_inputs, encode_inputs
from spm.store.versions.merge import Piece
from spm.wire import Stamp
from tests.support.rows import Sample, block, messages, number
from tests.support.store_columns import aggregate_rows, column_sizes

STAMPS = (Stamp(5, 1, 0), Stamp(5, 1, 1), Stamp(9, 2, 0))
SAMPLES = st.lists(
    st.tuples(st.integers(0, 9), st.integers(1, 2**41), st.integers(0, 2**64 - 1).map(number)), min_size=1
)
FEW: list[Sample] = [(1, 5, 1.5), (1, 6, 2.5), (4, 5, float("nan")), (7, 5, -0.0), (7, 6, 3.0), (7, 7, 4.0)]


def columns_of(content: object) -> dict[str, object]:
    """The arrays of a block, floats as bits."""
    flat: dict[str, object] = {}
    for name in content.__slots__:  # type: ignore[attr-defined]
        value = getattr(content, name)
        if hasattr(value, "__slots__"):
            flat.update({f"{name}.{k}": v for k, v in columns_of(value).items()})
        else:
            flat[name] = value.tobytes() if isinstance(value, np.ndarray) else value
    return flat


def log(count: int = 6) -> LogBlock:
    return block([(s + 10 * i, t, v) for i in range(count // 6) for s, t, v in FEW], stamps=STAMPS)


def chunk() -> ChunkPage:
    return ChunkPage(np.arange(3, dtype=np.uint64), np.zeros(3, np.int32), np.full(3, 2, np.int32), np.arange(6) / 8)


def timelines() -> TimelinesPage:
    return TimelinesPage(
        messages(STAMPS), np.array([2, 3], np.int32), np.arange(5) + 7, np.array([0, 1, 0, 1, 2], np.int32)
    )


def commit() -> Commit:
    return Commit(
        messages(STAMPS), np.array([1, 2, 3]), np.arange(48, dtype=np.uint8), 5, 7, BatchRows.of([(3, 11), (4, 12)])
    )


def aggregates() -> Aggregates:
    return aggregate_rows(np.array([1, 1, 2], np.uint64), np.array([5, 6, 5]), np.array([1.0, 2.0, 3.0]))


MANIFEST = Manifest(
    9,
    1,
    {(3, 11): Entry(State((Generation(5),), (Replay(7, 8),)))},
    {3: HourPack(Generation(6), {11: HourInputs(b"12345678")})},
)
INPUTS = Inputs((1,), (Replay(7, 8),), {4: (0, 1)}, 1, 6, 5, 9, ("host",))
HOURS = rollup_rows.encode_rows({4: [(11, aggregates())]}, lambda metric, page: b"k")[0][1]

# what is stored -> (its bytes, how they are read)
STORED: dict[str, tuple[bytes, Callable[[bytes], object]]] = {
    "a log block": (log().to_bytes(), LogBlock.from_bytes),
    "a chunk page": (chunk().to_bytes(), ChunkPage.from_bytes),
    "a timelines page": (timelines().to_bytes(), TimelinesPage.from_bytes),
    "a pending cell": (commit_records.encode(commit()), commit_records.decode),
    "a ledger row": (
        commit_records.encode(commit(), blocks.LEDGER, commit_records.DEAD, 7),
        commit_records.decode_ledger_row,
    ),
    "a manifest": (manifest.encode(MANIFEST), manifest.decode),
    "a month": (manifest.encode_month(Month(4)), manifest.decode_month),
    "inputs": (encode_inputs(INPUTS), decode_inputs),
    "a dead letter": (
        dead_letters.step(1, 2, b"n" * 16, dead_letters.DeadLetter(dead_letters.ROW, "why", b"x" * 400))[1][0][1][b"v"],
        dead_letters.decode,
    ),
    "hours' shape": (HOURS[rollup_rows.SHAPE], lambda raw: rollup_rows.decode_row({**HOURS, rollup_rows.SHAPE: raw})),
    "hours' sums": (HOURS[b"a:sum"], lambda raw: rollup_rows.decode_row({**HOURS, b"a:sum": raw})),
}
EACH = pytest.mark.parametrize(("raw", "read"), STORED.values(), ids=STORED)


@given(SAMPLES)
def test_a_log_block_comes_back_bit_for_bit(samples: list[Sample]) -> None:
    content = block(samples, stamps=STAMPS)
    assert columns_of(LogBlock.from_bytes(content.to_bytes())) == columns_of(content)


@pytest.mark.parametrize("content", [chunk(), timelines()], ids=["chunk", "timelines"])
def test_a_page_comes_back_bit_for_bit(content: ChunkPage | TimelinesPage) -> None:
    assert columns_of(type(content).from_bytes(content.to_bytes())) == columns_of(content)


@given(SAMPLES, st.integers(1, 9))
def test_a_block_cut_into_cells_holds_the_same_rows_in_the_same_order(samples: list[Sample], size: int) -> None:
    content = block(samples, stamps=STAMPS)
    cells = content.to_cells(samples_max=size)
    assert len(cells) == -(-len(samples) // size)
    parts = LogBlock.from_cells(dict(reversed(cells.items())))
    assert (
        np.concatenate([np.repeat(p.series, p.counts) for p in parts]).tolist()
        == np.repeat(content.series, content.counts).tolist()
    )
    for name in ("message", "ts", "values"):
        joined = np.concatenate([getattr(p, name) for p in parts])
        assert joined.tobytes() == getattr(content, name).tobytes()


def test_more_cells_than_a_byte_can_number_stay_in_order() -> None:
    content = block([(1, t + 1, float(t)) for t in range(600)])
    assert Piece.of_row(content.to_cells(samples_max=2)).values.tolist() == content.values.tolist()


@EACH
def test_every_flipped_bit_is_found_in(raw: bytes, read: Callable[[bytes], object]) -> None:
    for at in range(len(raw) * 8):
        bad = bytearray(raw)
        bad[at // 8] ^= 1 << at % 8
        with pytest.raises(CorruptBlock):
            read(bytes(bad))


def test_flipped_bits_are_found_in_a_large_block() -> None:
    raw = block([(s, t + 1, float(s * t % 7)) for s in range(50) for t in range(360)]).to_bytes()
    for at in np.random.default_rng(5).integers(0, len(raw) * 8, 1000):
        bad = bytearray(raw)
        bad[at // 8] ^= 1 << int(at % 8)
        with pytest.raises(CorruptBlock):
            LogBlock.from_bytes(bytes(bad))


@EACH
def test_cut_or_extended_bytes_are_refused_as(raw: bytes, read: Callable[[bytes], object]) -> None:
    for bad in [*(raw[:n] for n in range(len(raw))), raw + b"\0"]:
        with pytest.raises(CorruptBlock):
            read(bad)


@EACH
def test_bytes_of_another_kind_are_refused_as(raw: bytes, read: Callable[[bytes], object]) -> None:
    for other, _ in STORED.values():
        if other[0] != raw[0]:
            with pytest.raises(CorruptBlock, match="another kind"):
                read(other)


@EACH
def test_a_newer_version_is_distinguished_from_damage(raw: bytes, read: Callable[[bytes], object]) -> None:
    newest = blocks.versions_of(raw[0])[-1]
    known = " and ".join(map(str, range(1, newest + 1)))
    newer = blocks.frame(raw[0], raw[6:], version=newest + 1)
    with pytest.raises(CorruptBlock, match=rf"version .* not read; got {newest + 1}; wanted {known}\. .* upgrade"):
        read(newer)


def test_stamps_lie_as_lags_where_that_is_smaller() -> None:
    """One message per host and step, off the grid: a lag needs fewer bits than the stamp's difference to the last."""
    random = np.random.default_rng(1)
    ts = 10_000 * np.arange(1, 501, dtype=np.int64) + random.integers(-4_000, 4_000, 500)
    number = np.arange(500, dtype=np.int32)
    table = Messages(
        ts + random.integers(1, 9, 500), np.ones(500, np.int64), np.zeros(500, np.int64), number * 0, ("h",)
    )
    page = TimelinesPage(table, np.array([500], np.int32), ts, number)
    assert "lag" in column_sizes(page.to_bytes())
    assert columns_of(TimelinesPage.from_bytes(page.to_bytes())) == columns_of(page)
    assert "ms" in column_sizes(timelines().to_bytes())


def test_a_lag_of_a_message_that_is_not_listed_is_damage() -> None:
    columns: dict[str, np.ndarray] = {
        "lag": np.zeros(1, np.int64),
        "ts": np.arange(2),
        "message": np.array([0, 1], np.int32),
    }
    with pytest.raises(CorruptBlock, match="message"):
        blocks.decode_columns(blocks.TIMELINES, blocks.encode_columns(blocks.TIMELINES, columns))


@pytest.mark.parametrize(
    "column",
    [(99, 1, 1, 0, b""), (-1, 1, 1, 0, b""), (0, 15, 1, 0, b""), (0, -1, 1, 0, b""), (0, 16 * 9, 1, 0, b"")],
    ids=["no such name", "a name below zero", "no such kind", "a kind below zero", "no such form"],
)
def test_a_column_by_a_number_that_names_nothing_is_damage(column: tuple[object, ...]) -> None:
    texts: list[str] = []
    with pytest.raises(CorruptBlock):
        blocks.decode_columns(blocks.LOG, blocks.frame(blocks.LOG, blocks._PACK.encode((texts, [column]))))


def test_names_of_columns_take_little_of_a_small_block() -> None:
    """One message of three metrics: what is written around its columns, in a frame of either version."""
    raw = block([(s, 5, 1.5) for s in range(3)]).to_bytes()
    content = sum(column_sizes(raw).values())
    assert len(raw) - content < 110
    older = blocks.encode_columns(blocks.CHUNK, blocks.decode_columns(blocks.LOG, raw)[0])
    assert len(older) - content > 200


def test_a_kind_of_columns_is_never_written_as_a_record() -> None:
    with pytest.raises(AssertionError, match="inputs"):
        blocks.encode_record(blocks.INPUTS, INPUTS)


@given(
    st.lists(st.tuples(st.integers(0, 2**48), st.integers(0, 2**64 - 1)), max_size=20, unique=True),
    st.dictionaries(st.integers(0, 2**64 - 1), st.lists(st.integers(0, 65_535), max_size=4, unique=True), max_size=4),
    st.lists(st.text(max_size=9), max_size=3),
)
def test_inputs_come_back(batches: list[tuple[int, int]], pages: dict[int, list[int]], sources: list[str]) -> None:
    inputs = Inputs(
        (3, 2**64 - 1),
        tuple(sorted(Replay(*b) for b in batches)),
        {m: tuple(p) for m, p in pages.items()},
        2,
        2**40,
        5,
        2**47,
        tuple(sources),
    )
    assert decode_inputs(encode_inputs(inputs)) == inputs


def broken(kind: int, content: LogBlock | ChunkPage | TimelinesPage, **columns: object) -> bytes:
    """A well-framed block with some columns replaced (``None``: left out): what a bug in a writer would make."""
    good, texts = blocks.decode_columns(kind, content.to_bytes())
    bad = {name: columns.get(name, column) for name, column in good.items()}
    return blocks.encode_columns(kind, {n: c for n, c in bad.items() if c is not None}, texts)  # type: ignore[misc]


I32 = np.int32
SHAPES = {
    "fewer values than times": broken(blocks.LOG, log(), values=np.zeros(5)),
    "counts that add up to less": broken(blocks.LOG, log(), counts=np.array([1, 1, 1], I32)),
    "a negative count": broken(blocks.LOG, log(), counts=np.array([9, -4, 1], I32)),
    "a series without count": broken(blocks.LOG, log(), series_hash=np.zeros(4, np.uint64)),
    "a message that is not listed": broken(blocks.LOG, log(), message=np.full(6, 3, I32)),
    "a message before the first": broken(blocks.LOG, log(), message=np.full(6, -1, I32)),
    "a metric that is not listed": broken(blocks.LOG, log(), metric=np.full(3, 3, I32)),
    "a source that is not listed": broken(blocks.LOG, log(), source=np.ones(3, I32)),
    "messages of different lengths": broken(blocks.LOG, log(), ms=np.arange(2)),
    "no times": broken(blocks.LOG, log(), ts=None),
}


@pytest.mark.parametrize("raw", SHAPES.values(), ids=SHAPES)
def test_a_log_block_is_refused_with(raw: bytes) -> None:
    with pytest.raises(CorruptBlock):
        LogBlock.from_bytes(raw)


@pytest.mark.parametrize(
    "columns",
    [{"values": np.zeros(5)}, {"timeline": np.zeros(2, I32)}, {"counts": None}],
    ids=["fewer values", "fewer timelines than series", "no counts"],
)
def test_a_chunk_page_is_refused_with(columns: dict[str, object]) -> None:
    with pytest.raises(CorruptBlock):
        ChunkPage.from_bytes(broken(blocks.CHUNK, chunk(), **columns))


@pytest.mark.parametrize(
    "columns",
    [{"ts": np.zeros(4, np.int64)}, {"message": np.full(5, 9, I32)}, {"counts": np.array([2, 2], I32)}],
    ids=["fewer times", "a message that is not listed", "counts that add up to less"],
)
def test_a_timelines_page_is_refused_with(columns: dict[str, object]) -> None:
    with pytest.raises(CorruptBlock):
        TimelinesPage.from_bytes(broken(blocks.TIMELINES, timelines(), **columns))


def test_a_claimed_size_takes_no_memory() -> None:
    texts: list[str] = []
    ts, values, constant = blocks.COLUMN_NAMES.index("ts"), blocks.COLUMN_NAMES.index("values"), 16
    body = (texts, [(ts, constant + 1, 1 << 60, 0, b"\0" * 8), (values, constant + 2, 1 << 24, 0, b"\0" * 16)])
    tracemalloc.start()
    with pytest.raises(CorruptBlock):
        blocks.decode_columns(blocks.LOG, blocks.frame(blocks.LOG, blocks._PACK.encode(body)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5_000_000


def test_a_record_that_unpacks_to_more_than_any_we_write_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = blocks.encode_record(blocks.DEAD, b"0" * 10_000)
    monkeypatch.setattr(blocks, "RECORD_BYTES_MAX", 9_999)
    with pytest.raises(CorruptBlock, match="larger than any we write"):
        blocks.decode_record(blocks.DEAD, raw, bytes)


@pytest.mark.parametrize("kind", [blocks.MANIFEST, blocks.MONTH, blocks.DEAD, blocks.RETRACTION, blocks.WATERMARK])
def test_a_record_that_no_reader_accepts_is_not_written(kind: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "RECORD_BYTES_MAX", 10_000)
    blocks.decode_record(kind, blocks.encode_record(kind, b"0" * 9_997), bytes)  # three bytes tell its length
    with pytest.raises(LimitExceeded, match="larger than any that can be read"):
        blocks.encode_record(kind, b"0" * 9_998)
