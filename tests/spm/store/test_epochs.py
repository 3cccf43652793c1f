"""Claims about placement functions and their epochs: where data may lie, and how that changes (PROTOCOL 22)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spm.errors import CorruptBlock, PlacementUnfit, Refused, StoreUnavailable
from spm.store import epochs as store_epochs
from spm.store.backends.memory import MemoryBackend
from spm.store.encoding import blocks
from spm.store.keys import BYTE, CLOSED, CLOSING, HASH, OPEN, PlacementEpoch, PlacementTable
from tests.support.rows import APP

SHAPES = st.integers(1, 256).flatmap(
    lambda shards: st.tuples(st.sampled_from([HASH, BYTE]), st.just(shards), st.integers(1, shards))
)
METRICS = st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20).map(lambda m: np.array(m, np.uint64))


@given(st.lists(SHAPES, min_size=1, max_size=4), st.integers(0, 2**32 - 1), METRICS)
def test_readers_look_wherever_a_writer_of_any_epoch_that_is_not_closed_puts(
    shapes: list[tuple[str, int, int]], app: int, metrics: np.ndarray
) -> None:
    epochs = tuple(PlacementEpoch(i, *shape) for i, shape in enumerate(shapes))
    looked = set(PlacementTable(epochs).all_shards(app))
    for epoch in epochs:
        assert set(epoch.place(app, metrics).tolist()) <= looked


@given(SHAPES, st.integers(0, 2**32 - 1), METRICS)
def test_a_metric_lies_in_one_shard_of_an_epoch(shape: tuple[str, int, int], app: int, metrics: np.ndarray) -> None:
    result = PlacementEpoch(0, *shape).place(app, np.repeat(metrics, 2))
    assert (result[::2] == result[1::2]).all()


def test_the_bytes_of_many_metrics_fill_their_shards_evenly() -> None:
    metrics = np.random.default_rng(1).integers(0, 2**64, 32 * 500, np.uint64)
    load = np.bincount(PlacementEpoch(0, BYTE, 32, 32).place(APP, metrics), minlength=32)
    assert load.max() / load.mean() < 1.2
    assert load.min() > 0


def test_a_closed_epoch_is_not_read_any_more_and_settles_the_rest() -> None:
    store = MemoryBackend()
    assert store_epochs.read(store, APP) == PlacementTable()
    opened = store_epochs.open_epoch(store, APP, function=BYTE, shards=4, spread=4)
    assert not opened.has_one_live_epoch
    store_epochs.set_state(store, APP, 0, CLOSING)
    assert not store_epochs.read(store, APP).has_one_live_epoch
    closed = store_epochs.set_state(store, APP, 0, CLOSED)
    assert closed.has_one_live_epoch
    assert closed.all_shards(APP) == [0, 1, 2, 3]
    assert store_epochs.read(store, APP) == closed


def test_the_default_placement_is_that_of_apps_without_their_own() -> None:
    store = MemoryBackend()
    general = PlacementTable.single(shards=8, spread=2)
    store.put([("config", [(store_epochs.GENERAL, {store_epochs.COLUMN: store_epochs.encode(general)})])])
    own = store_epochs.open_epoch(store, APP, function=HASH, shards=8, spread=4)
    assert own.epochs[0] == general.newest
    assert store_epochs.read(store, APP) == own
    assert store_epochs.read(store, APP + 1) == general


@pytest.mark.parametrize(
    ("act", "match"),
    [
        pytest.param(lambda s: store_epochs.set_state(s, APP, 1, CLOSING), "writers use", id="the newest epoch"),
        pytest.param(lambda s: store_epochs.set_state(s, APP, 9, CLOSING), "no epoch 9", id="one that is not there"),
        pytest.param(lambda s: store_epochs.set_state(s, APP, 0, CLOSED), "still open", id="at once"),
        pytest.param(
            lambda s: [store_epochs.set_state(s, APP, 0, state) for state in (CLOSING, OPEN)], "already", id="back"
        ),
    ],
)
def test_an_epoch_is_not_closed(act: object, match: str) -> None:
    store = MemoryBackend()
    store_epochs.open_epoch(store, APP, function=HASH, shards=16, spread=2)
    with pytest.raises(Refused, match=match):
        act(store)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("function", "shards", "spread"),
    [("odd", 4, 1), (HASH, 0, 0), (HASH, 257, 1), (HASH, 4, 5), (HASH, 4, 0), (HASH, 16, 1)],
    ids=["unknown function", "no shard", "more than a byte", "spread too wide", "no spread", "as it is"],
)
def test_an_epoch_is_not_opened_with(function: str, shards: int, spread: int) -> None:
    with pytest.raises(Refused):
        store_epochs.open_epoch(MemoryBackend(), APP, function=function, shards=shards, spread=spread)


def test_a_table_with_an_unknown_placement_function_is_not_guessed() -> None:
    raw = blocks.encode_record(blocks.PLACEMENT, (PlacementEpoch(0, "odd"),))
    with pytest.raises(PlacementUnfit, match="no placement function 'odd'"):
        store_epochs.decode(raw)


def test_a_placement_table_without_epochs_is_damage() -> None:
    with pytest.raises(CorruptBlock, match="without epochs"):
        store_epochs.decode(blocks.encode_record(blocks.PLACEMENT, ()))


class Deaf(MemoryBackend):
    """Sets a cell and then does not answer, once."""

    lost = True

    def check_and_put(self, table: str, key: bytes, column: bytes, expected: bytes | None, value: bytes) -> bool:
        landed = super().check_and_put(table, key, column, expected, value)
        if self.lost:
            self.lost = False
            raise StoreUnavailable("no answer")
        return landed


def test_a_lost_answer_opens_one_epoch_only() -> None:
    result = store_epochs.open_epoch(Deaf(), APP, function=HASH, shards=16, spread=2)
    assert [epoch.number for epoch in result.epochs] == [0, 1]
