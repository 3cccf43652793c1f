"""Claims about bytes per value: what stays of raw data, through the real writer and a full run."""

import pytest

from tests.bench.footprint import DATA_TABLES, Shape, column_bytes, shapes, stored, table_bytes

# bytes per value in chunks, timelines and inputs together, of 20 hosts x 10 metrics x 10 s, an hour
AIMS = {
    "whole numbers, grid, bodies of 10,000 lines": 0.27,
    "whole numbers, ±40 ms, a message per host and step": 0.48,
    "the same, each message a batch": 0.52,
    "random floats, grid, bodies of 10,000 lines": 7.0,
    "32-bit floats, grid, bodies of 10,000 lines": 2.7,
    "ratios, grid, bodies of 10,000 lines": 1.4,
}


@pytest.mark.slow
@pytest.mark.parametrize("shape", shapes(20), ids=lambda shape: shape.name)
def test_an_hour_takes_so_few_bytes_per_value(shape: Shape) -> None:
    sizes, values = table_bytes(stored(shape)), len(shape.fleet)
    assert sum(sizes[table] for table in DATA_TABLES) / values < AIMS[shape.name]


def test_columns_make_up_nearly_all_of_their_tables() -> None:
    store = stored(shapes(5)[0])
    columns, sizes = column_bytes(store), table_bytes(store)
    tables = sizes["chunks"] + sizes["timelines"]
    assert 0.5 * tables < sum(columns.values()) < tables
