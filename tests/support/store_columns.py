"""Helpers over the store's columns: aggregates of winners, sizes of stored columns, compiled kernels.

The product computes rollup rows in tables of many series and compiles its kernels by its whole pipeline; tests want one
series, one block or one kernel at a time.
"""

from collections.abc import Sequence

import numpy as np

from spm.arrays import F64, I64, U64
from spm.store.encoding import blocks, kernels
from spm.store.rollup.aggregates import Aggregates, aggregate, concatenate, merge_rows, run_starts
from spm.store.versions import kernels as version_kernels


def aggregate_rows(series: U64, ts: I64, values: F64) -> Aggregates:
    """Aggregate winners that carry their series in every row."""
    heads = run_starts(series)
    return aggregate(series[heads[:-1]], heads, ts, values)


def merge_aggregates(parts: Sequence[Aggregates]) -> Aggregates:
    """Merge the aggregates of consecutive time ranges, given in the order of time, into those of the whole range."""
    rows = concatenate([Aggregates.empty(), *parts])
    return merge_rows(rows.take(np.argsort(rows.series, kind="stable")))


def column_sizes(raw: bytes) -> dict[str, int]:
    """The packed bytes of each column of a frame."""
    _, columns = blocks.packed_columns(raw[0], raw)
    return {name: len(body) for name, (_, _, _, _, body) in columns.items()}


def compile_kernels() -> None:
    """Compile the kernels of the store for the types that the product calls them with."""
    values, ts = np.array([1.0, 2.5]), np.array([1, 2])
    rank = np.zeros(2, np.int32)
    bits = values.view(np.int64)
    kernels.decimal_scale(values, bits, 1)
    kernels.decimal_split(values, bits, 1, 1)
    counts, order = kernels.group_by_series(rank, 1)
    version_kernels.order_versions(counts, order, ts, rank, bits)
    version_kernels.winners(counts, ts, ts, np.ones(ts.size, np.bool_))
    kernels.find_timelines(counts, ts, rank)
    kernels.take_segments(ts[:1], counts, 2)
    kernels.spread(counts, 2)
    kernels.distinct(ts.view(np.uint64))
    ids = ts.view(np.uint64)
    numbers = version_kernels.find_series(ids, ids, ids[:1], np.array([[0, 1]]), ids[:1])
    version_kernels.rows_of(np.ones(2, np.int32), numbers)
    version_kernels.first_not_below(ids, ids, 0, ids[0], ids[0])
