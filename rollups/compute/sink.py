"""Writes the rows of a task: pages first, then the ``inputs`` row that lists them (PROTOCOL 10, 13).

Every attempt writes under its own generation number, so that nobody sees its rows before the driver publishes them,
and a second attempt, a crash or a repeated put changes nothing. Nothing here reads.
"""

from collections.abc import Mapping, Sequence

from rollups.compute.source import PackPlace
from rollups.crash_points import Hook
from spm import limits
from spm.store import keys
from spm.store.backends.base import Backend, RowPut
from spm.store.manifest import Generation
from spm.store.rollup import rows as rollup_rows
from spm.store.rollup.aggregates import Aggregates
from spm.store.versions.generations import COLUMN, Inputs, Pages, encode_inputs


def write_hour_shard(store: Backend, pages: Pages, at: Hook) -> int:
    """Writes a generation of an hour shard; returns its bytes."""
    store.put([("chunks", pages.chunks), ("timelines", pages.timelines)])
    at("pages written")
    store.put([("inputs", [pages.inputs])])
    at("inputs written")
    return _bytes([*pages.chunks, *pages.timelines, pages.inputs])


def write_pack(
    store: Backend,
    place: PackPlace,
    metrics: Mapping[int, Sequence[tuple[int, Aggregates]]],
    *,
    number: int,
    old: int,
    form: int,
) -> tuple[Generation, int, int]:
    """Writes a pack of hours or days; returns (its generation, rows, bytes). ``old``: the pack that it replaces."""
    largest = max((rollup_rows.weight(rows for _, rows in steps) for steps in metrics.values()), default=0)
    generation = Generation(number, page_bits=(largest // limits.ROLLUP_ROWS_MAX).bit_length(), form=form)
    rows = rollup_rows.encode_rows(metrics, lambda metric, page: place.key(number, metric, page), generation.page_bits)
    directory: dict[int, tuple[int, ...]] = {}
    for key, _ in rows:
        _, _, metric, _, _, page = keys.parse_chunk(key)
        directory[metric] = (*directory.get(metric, ()), page)
    inputs = Inputs((old,) if old else (), (), directory, 0, len(rows), 0, 0, ())
    name = keys.inputs(place.shard, place.app, place.hour, number)
    record = (name, {COLUMN: encode_inputs(inputs)})
    store.put([(place.table, rows), ("inputs", [record])])
    return generation, len(rows), _bytes([*rows, record])


def _bytes(rows: Sequence[RowPut]) -> int:
    return sum(len(value) for _, cells in rows for value in cells.values())
