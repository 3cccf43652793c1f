"""Claims about spm/store/rollup/rows.py: rows of hours and days come back whole or in the parts that were asked for."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spm.errors import CorruptBlock
from spm.store.encoding import blocks
from spm.store.rollup import rows as rollup_rows
from spm.store.rollup import sketch
from spm.store.rollup.aggregates import COLUMNS, Aggregates
from spm.store.rollup.rows import CELLS, SHAPE, SKETCH, StepColumns
from spm.store.rollup.sketch import Sketches
from tests.support.store_columns import aggregate_rows

HOSTILE = [np.inf, -np.inf, np.nan, 0.0, -0.0, 5e-324, -1e308, 1e308, 1.0, 1.01]
value = st.one_of(st.floats(width=64), st.sampled_from(HOSTILE), st.integers(-9, 9).map(float))
# of one step: series -> its values
step = st.dictionaries(st.integers(0, 5), st.lists(value, min_size=1, max_size=9), max_size=4)

sketch.warm()  # compiling would look like a slow example


def aggregates_of(values: dict[int, list[float]]) -> Aggregates:
    rows = [(s, v) for s in sorted(values) for v in values[s]]
    series = np.array([s for s, _ in rows], np.uint64)
    return aggregate_rows(series, np.arange(1, len(rows) + 1), np.array([v for _, v in rows], np.float64))


def row(steps: list[dict[int, list[float]]], page_bits: int = 0) -> list[dict[bytes, bytes]]:
    pairs = [(n, aggregates_of(values)) for n, values in enumerate(steps)]
    return [dict(cells) for _, cells in rollup_rows.encode_rows({4: pairs}, lambda metric, page: b"k", page_bits)]


def flat(steps: StepColumns) -> list[bytes]:
    sketches = steps.rows.sketch
    columns = [steps.step, *(getattr(steps.rows, f.name) for f in fields(Aggregates) if f.name != SKETCH)]
    return [c.tobytes() for c in (*columns, sketches.starts, sketches.keys, sketches.counts)]


MANY = [{1: [1.0, 2.0], 2: HOSTILE}, {2: [3.0]}, {1: [np.nan], 3: [4.0]}]


@given(st.lists(step, min_size=1, max_size=4).filter(any))
@example(MANY)
@example([{1: [np.nan]}, {1: [0.0]}])
def test_a_row_comes_back_bit_for_bit(steps: list[dict[int, list[float]]]) -> None:
    [cells] = row(steps)
    wanted = rollup_rows.join([(n, aggregates_of(values)) for n, values in enumerate(steps)])
    assert flat(rollup_rows.decode_row(cells)) == flat(wanted)


@pytest.mark.parametrize("name", CELLS)
def test_an_aggregate_asked_for_is_read_from_its_own_cells_alone(name: str) -> None:
    [cells] = row(MANY)
    whole, part = (
        rollup_rows.decode_row(cells),
        rollup_rows.decode_row({n: cells[n] for n in (SHAPE, CELLS[name])}, {name}),
    )
    assert part.step.tolist() == whole.step.tolist()
    assert part.rows.series.tolist() == whole.rows.series.tolist()
    for other in CELLS:
        mine, theirs = getattr(part.rows, other), getattr(whole.rows, other)
        if other == SKETCH:
            assert len(mine) == (len(theirs) if name == SKETCH else 0)
        else:
            assert mine.tobytes() == (theirs.tobytes() if other == name else b"")


def test_one_step_of_a_part_has_the_aggregates_that_were_asked_for() -> None:
    [cells] = row(MANY)
    rows = rollup_rows.decode_row(cells, {"max"}).at(1)
    assert (rows.series.tolist(), rows.max.tolist(), len(rows.sum)) == ([2], [3.0], 0)


def test_rows_without_sketches_are_written_and_read_as_such() -> None:
    """Rows of form 1, and packs that keep some: percentiles of these come from raw."""
    old, new = replace(aggregates_of({1: [1.0], 2: [np.nan]}), sketch=Sketches.empty()), aggregates_of({1: [5.0]})
    [(_, bare)] = rollup_rows.encode_rows({4: [(0, old)]}, lambda metric, page: b"k")
    assert CELLS[SKETCH] not in bare
    assert rollup_rows.decode_row(bare).rows.has_sketch.tolist() == [False, True]
    [(_, mixed)] = rollup_rows.encode_rows({4: [(0, old), (1, new)]}, lambda metric, page: b"k")
    read = rollup_rows.decode_row(mixed)
    assert read.at(0).has_sketch.tolist() == [False, True]
    assert read.at(1).has_sketch.tolist() == [True]
    assert sketch.quantile(read.at(1).sketch, 0.5) == pytest.approx([5.0], rel=0.01)


def test_sketches_of_scattered_values_fill_a_page_sooner() -> None:
    calm, scattered = aggregates_of({1: [1.0]}), aggregates_of({1: [2.0**n for n in range(80)]})
    assert (rollup_rows.weight([calm, calm]), rollup_rows.weight([calm, scattered])) == (2, 21)


def test_pages_hold_every_entry_once() -> None:
    steps = [{n << 61: [float(n)] for n in range(8)}] * 3
    pages = [rollup_rows.decode_row(cells) for cells in row(steps, page_bits=2)]
    assert len(pages) == 4
    assert [len(page.step) for page in pages] == [6] * 4


def _columns(**changed: np.ndarray) -> dict[str, np.ndarray]:
    whole = {
        "sizes": np.array([2, 0, 1], np.int32),
        "lowest": np.array([5, 7], np.int32),
        "gaps": np.array([0], np.int32),
        "counts": np.array([1, 1, 4]),
    }
    return {**whole, **changed}


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"sizes": np.array([2, 1], np.int32)}, id="an entry too few"),
        pytest.param({"sizes": np.array([4, -2, 1], np.int32)}, id="a size below zero"),
        pytest.param({"counts": np.array([1, 1])}, id="a count too few"),
        pytest.param({"counts": np.array([1, 0, 4])}, id="a shard of nothing"),
        pytest.param({"lowest": np.array([5], np.int32)}, id="a lowest key too few"),
        pytest.param({"gaps": np.array([-1], np.int32)}, id="a key twice"),
        pytest.param({"gaps": np.array([2**31 - 1], np.int32)}, id="a key that stands for no number"),
    ],
)
def test_sketches_that_do_not_fit_together_are_damage(changed: dict[str, np.ndarray]) -> None:
    cells = row([{1: [1.0], 2: [2.0], 3: [3.0]}])[0]

    def read(columns: dict[str, np.ndarray]) -> StepColumns:
        return rollup_rows.decode_row({**cells, CELLS[SKETCH]: blocks.encode_columns(blocks.HOURS, columns)})

    assert read(_columns()).rows.sketch.keys.tolist() == [5, 6, 7]
    with pytest.raises(CorruptBlock):
        read(_columns(**changed))


def test_every_aggregate_has_a_cell() -> None:
    assert list(CELLS) == [*(name for name, _ in COLUMNS), SKETCH]
