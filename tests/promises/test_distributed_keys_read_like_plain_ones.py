"""WD1 to WD7: the cases by which a library of distributed keys was once tested, on keys, scans and runs of today.

There a prefix of the key chose the region, here a shard of the metric does; a key is then read at once, and a range by
one scan in every shard. What was one table's scan is here a select, whose answer must be that over one shard.
"""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.writer import Writer
from spm.limits import HOUR_MS
from spm.query.request.batches import METRIC_NAME
from spm.store import epochs, keys
from spm.store.backends.memory import MemoryBackend
from spm.store.keys import BYTE, HASH, PlacementEpoch, PlacementTable
from spm.store.placement import SETTING, byte_fits, with_fingerprint
from spm.wire import Envelope, SeriesTable, Stamp, canonical
from tests.support.rows import APP, START
from tests.support.store_reader import EVERY, reader

Note = Callable[[str], None]
WITNESS = 0x25A4F6B9C6302417  # the smallest number is its hash, and has no absolute value
CENTRE, KEYS = 500, 500
SHAPES = [(HASH, 1, 1), (HASH, 16, 16), (HASH, 37, 37), (BYTE, 16, 1), (HASH, 256, 256), (BYTE, 256, 1)]


@pytest.fixture(autouse=True)
def operators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strategies of an operator's own, too."""
    monkeypatch.setenv(SETTING, "tests.rollups.placing")


def zigzag(centre: int, size: int) -> Iterator[int]:
    """500, 499, 502, 497, …: keys around a centre, farther and farther."""
    for step in range(size):
        yield centre - step if step % 2 else centre + step


def message(numbers: list[int], sequence: int) -> Envelope:
    """Key k is a sample of metric k mod 97, k minutes after the start."""
    forms = sorted({canonical(f"wd{k % 97}", {"n": str(k % 97)}) for k in numbers})
    at = {form: i for i, form in enumerate(forms)}
    return Envelope(
        app=APP,
        source="host",
        stamp=Stamp(1_699_300_000_000, 1, sequence),
        message_id=bytes(16),
        series=SeriesTable.from_canonical(forms),
        series_index=np.array([at[canonical(f"wd{k % 97}", {"n": str(k % 97)})] for k in numbers], np.int32),
        ts=np.array([START + k * 60_000 for k in numbers], np.int64),
        values=np.array(numbers, np.float64),
        rejected=0,
    )


def filled(shape: tuple[str, int, int]) -> MemoryBackend:
    """The zig-zag keys, ten a message, in a table of this shape."""
    store = MemoryBackend()
    strategy, shards, spread = shape
    placed = PlacementTable((PlacementEpoch(0, with_fingerprint(strategy, shards, spread), shards, spread),))
    store.check_and_put("config", epochs.row_key(APP), epochs.COLUMN, None, epochs.encode(placed))
    order = list(zigzag(CENTRE, KEYS))
    messages = [message(order[i : i + 10], i) for i in range(0, KEYS, 10)]
    writer = Writer(store, PlacementTable())
    for few in range(0, len(messages), 5):
        writer.write(messages[few : few + 5])
    return store


def scanned(store: MemoryBackend, start: int, stop: int) -> list[tuple[str, int, float]]:
    """(metric, minute, value) of every row between two minutes, in the order of the answer."""
    batch = reader(store).select(EVERY, START + start * 60_000, START + stop * 60_000)
    owner = np.repeat(np.arange(len(batch.labels)), np.diff(batch.offsets))
    rows = zip(owner.tolist(), batch.ts.tolist(), batch.values.tolist(), strict=True)
    return [(batch.labels[i][METRIC_NAME], (ts - START) // 60_000, value) for i, ts, value in rows]


@pytest.mark.seed("WD1", compares="a key's parts with those it was made of; its row with the one got by it")
@given(st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1), st.integers(0, 80_000_000), st.sampled_from(SHAPES))
def test_wd1_a_row_is_got_by_its_distributed_key_which_gives_back_the_original(
    app: int, metric: int, hour: int, shape: tuple[str, int, int]
) -> None:
    epoch, store = PlacementEpoch(0, *shape), MemoryBackend()

    def key() -> bytes:
        [shard] = epoch.place(app, np.array([metric], np.uint64)).tolist()
        return keys.chunk(shard, app, metric, hour, 1, 0)

    store.put([("chunks", [(key(), {b"v": b"row"})])])
    assert store.get("chunks", [key()]) == [{b"v": b"row"}]
    assert keys.parse_chunk(key())[1:] == (app, metric, hour, 1, 0)


BOUNDS = {
    "bounded": (421, 593),
    "unbounded": (-1, 10**6),
    "from a start": (500, 10**6),
    "up to an end": (-1, 500),
    "one key": (500, 501),
    "nothing": (2_000, 3_000),
    "before everything": (-1, 0),
}


@pytest.mark.seed("WD2", compares="scans over 1 to 256 shards with the keys of their range, in the order of one shard")
@pytest.mark.seed("A27", compares="the same, by kind of bound")
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_wd2_keys_written_zigzag_are_scanned_in_order_within_any_bounds(
    shape: tuple[str, int, int], figure: Note
) -> None:
    store, one = filled(shape), filled((HASH, 1, 1))
    written = set(zigzag(CENTRE, KEYS))
    for start, stop in BOUNDS.values():
        rows_ = scanned(store, start, stop)
        wanted = sorted(k for k in written if start < k <= stop)
        assert sorted(minute for _, minute, _ in rows_) == wanted
        assert rows_ == scanned(one, start, stop)
        for metric in {metric for metric, _, _ in rows_}:
            assert np.all(np.diff([minute for name, minute, _ in rows_ if name == metric]) > 0)
        assert all(value == minute for _, minute, value in rows_)
    figure(f"{len(SHAPES)} shapes, {len(BOUNDS)} kinds of bounds, {KEYS} keys")


@pytest.mark.seed("WD3", compares="rows of a job over hours with rows of scans over the same, bounded and unbounded")
@pytest.mark.parametrize("shape", [(HASH, 16, 16), (BYTE, 256, 1)], ids=str)
@pytest.mark.parametrize("hours", [None, (8, 10)], ids=["unbounded", "bounded"])
def test_wd3_a_job_reads_as_many_rows_as_a_scan(shape: tuple[str, int, int], hours: tuple[int, int] | None) -> None:
    """The job reads whole hours, as runs do. On Spark: (``tests/rollups/spark/test_frames.py``)."""
    store = filled(shape)
    first, last = hours or (0, 17)
    shards = reader(store).select_hours(EVERY, START // HOUR_MS + first, START // HOUR_MS + last)
    assert int(shards.count.sum()) == len(scanned(store, first * 60, (last + 1) * 60))
    inside = sum(first * 60 < key <= (last + 1) * 60 for key in zigzag(CENTRE, KEYS))
    assert int(shards.count.sum()) == inside == (KEYS if hours is None else 91)


@pytest.mark.seed("WD4", compares="shards of 1,000 random keys with the known ones, asked twice")
def test_wd4_random_keys_lie_in_known_shards_and_always_in_the_same(figure: Note) -> None:
    metrics = np.random.default_rng(4).integers(0, 2**64, 1_000, np.uint64)
    for shards in (1, 2, 12, 32, 37, 255, 256):
        for strategy in (HASH, BYTE, "two bytes", "none"):
            epoch = PlacementEpoch(0, with_fingerprint(strategy, shards, shards), shards, shards)
            places = epoch.place(APP, metrics)
            assert set(places.tolist()) <= set(epoch.all_shards(APP)) <= set(range(shards))
            assert (places == epoch.place(APP, metrics)).all()
            assert (places[::-1] == epoch.place(APP, metrics[::-1])).all(), "neighbours do not count"
    figure("4 strategies, 7 numbers of shards")


LOADS = [(32, 55), (37, 13), (255, 20), (256, 20), (256, 1), (1, 200), (1, 1)]


@pytest.mark.seed(
    "WD5", compares="load of each shard with the mean: chi-square, and ±10 % where there are 5,000 keys each"
)
@pytest.mark.parametrize(("shards", "each"), LOADS)
@pytest.mark.parametrize("strategy", [HASH, BYTE, "two bytes"])
def test_wd5_shards_fill_evenly(strategy: str, shards: int, each: int, figure: Note) -> None:
    if strategy == BYTE and not byte_fits(shards):
        pytest.skip("256 values do not fill 255 shards: such an epoch is refused")
    epoch = PlacementEpoch(0, with_fingerprint(strategy, shards, shards), shards, shards)
    rng = np.random.default_rng(shards * each)
    loads = np.bincount(epoch.place(APP, rng.integers(0, 2**64, shards * each, np.uint64)), minlength=shards)
    chi = float(((loads - each) ** 2 / each).sum())
    assert chi <= shards + 5 * np.sqrt(2 * shards), "one table in a million is as uneven by chance"
    many = np.bincount(epoch.place(APP, rng.integers(0, 2**64, shards * 5_000, np.uint64)), minlength=shards) / 5_000
    if 256 % shards == 0 or strategy != BYTE:
        assert abs(many - 1).max() <= 0.1
    assert many.max() <= 1.1
    figure(f"{strategy}: {many.min():.2f} to {many.max():.2f} of the mean over {shards}")


@pytest.mark.seed("WD6", compares="answers over prefixes of none, one and two bytes with the samples written")
@pytest.mark.parametrize("strategy", ["none", HASH, BYTE, "two bytes"])
def test_wd6_prefixes_of_any_width_give_equal_answers(strategy: str) -> None:
    """The shard in a key is one byte; a strategy may draw on none of the metric's bytes, on one, or on several."""
    store = filled((strategy, 64, 64))
    shards = {keys.LogKey.parse(key).shard for key, _ in store.scan("log", b"", b"\xff" * 64)}
    assert len(shards) == 1 if strategy == "none" else len(shards) > 40
    assert scanned(store, -1, 10**6) == scanned(filled((HASH, 1, 1)), -1, 10**6)


def test_the_witness_is_the_key_whose_hash_has_no_absolute_value() -> None:
    """As the hash of old counted it: in 32 bits with a sign, where the absolute value of the smallest is itself."""
    value = 1
    for byte in WITNESS.to_bytes(8, "big"):
        value = (31 * value + (byte - 256 if byte > 127 else byte)) & 0xFFFF_FFFF
    assert value == 0x8000_0000


@pytest.mark.seed("WD7", compares="for 1 to 256 shards: the shard of the witness key with those a reader looks in")
@given(st.integers(0, 2**32 - 1))
def test_wd7_the_witness_key_lies_where_readers_look(app: int) -> None:
    metrics = np.array([WITNESS, 2**63, 2**63 - 1, 2**64 - 1, 0], np.uint64)
    for shards in range(1, 257):
        for spread in {1, (shards + 1) // 2, shards}:
            for epoch in (PlacementEpoch(0, HASH, shards, spread), PlacementEpoch(0, BYTE, shards, spread)):
                assert set(epoch.place(app, metrics).tolist()) <= set(epoch.all_shards(app)) <= set(range(shards))
