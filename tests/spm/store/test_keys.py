"""Claims about spm/store/keys.py: widths, order, and that no tenant's range touches another's."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spm.errors import IntegrityError
from spm.store import keys
from spm.store.keys import U32, U64, LogKey, PendingKey, PlacementTable

BYTE = st.one_of(st.sampled_from([0, 1, 254, 255]), st.integers(0, 255))
WORD = st.one_of(st.sampled_from([0, 1, 255, 256, U32 - 1, U32]), st.integers(0, U32))
LONG = st.one_of(st.sampled_from([0, 1, U32, U32 + 1, U64 - 1, U64]), st.integers(0, U64))
HOUR = st.integers(0, 80_000_000)  # year 11000

# table -> how its keys are made from (shard, app, long, word): any row of an app
MAKERS: dict[str, Callable[[int, int, int, int], bytes]] = {
    "series": lambda b, a, x, w: keys.series(a, x, U64 - x),
    "log": lambda b, a, x, w: LogKey(b, a, w, x, x).to_bytes(),
    "pending": lambda b, a, x, w: PendingKey(b, a, x, x).to_bytes(),
    "chunks": lambda b, a, x, w: keys.chunk(b, a, x, w, x, w & 0xFFFF),
    "timelines": lambda b, a, x, w: keys.timeline(b, a, w, x, w & 0xFFFF),
    "inputs": lambda b, a, x, w: keys.inputs(b, a, w, x),
    "hours": lambda b, a, x, w: keys.hours(b, a, x, w, x, w & 0xFFFF),
    "days": lambda b, a, x, w: keys.days(b, a, x, w, x, w & 0xFFFF),
    "manifest": lambda b, a, x, w: keys.manifest(a, w >> 1),
    "ledger": lambda b, a, x, w: keys.ledger(a, w, x, w),
    "marks": lambda b, a, x, w: keys.watermark(a, w),
    "retractions": lambda b, a, x, w: keys.retraction(a, x),
    "dead": lambda b, a, x, w: keys.dead(a, x, x.to_bytes(16, "big")),
}


def test_every_table_has_a_maker_here() -> None:
    assert MAKERS.keys() | {"config"} == keys.TABLES.keys()


@given(BYTE, WORD, LONG, WORD)
def test_keys_have_the_width_of_their_table(shard: int, app: int, number: int, word: int) -> None:
    for table, make in MAKERS.items():
        assert len(make(shard, app, number, word)) == keys.TABLES[table]


@given(BYTE, WORD, HOUR, LONG, LONG)
def test_keys_give_back_their_fields(shard: int, app: int, hour: int, number: int, other: int) -> None:
    log, row = LogKey(shard, app, hour, number, other), PendingKey(shard, app, number, other)
    assert LogKey.parse(log.to_bytes()) == log
    assert PendingKey.parse(row.to_bytes()) == row
    assert row.log(hour) == log
    assert keys.column_hour(keys.hour_column(hour)) == hour
    assert keys.parse_chunk(keys.chunk(shard, app, number, hour, other, 9)) == (shard, app, number, hour, other, 9)
    heads = keys.chunk_heads(shard, app, [number])
    assert keys.chunks(heads, hour, other, 9) == [keys.chunk(shard, app, number, hour, other, 9)]
    assert keys.parse_inputs(keys.inputs(shard, app, hour, number)) == (shard, app, hour, number)
    assert keys.parse_series(keys.series(app, number, other)) == (number, other)
    many = np.array([app, 7], np.uint32), np.array([number, 1], np.uint64), np.array([other, 2], np.uint64)
    assert keys.series_many(*many) == [keys.series(app, number, other), keys.series(7, 1, 2)]
    assert keys.parse_manifest(keys.manifest(app, hour)) == (hour, False)
    assert keys.parse_manifest(keys.manifest_month(app, hour)) == (hour, True)


NEWER = [
    ("log by hour", lambda t: LogKey(1, 2, t, 5, 6).to_bytes()),
    ("log by ingest time", lambda t: LogKey(1, 2, 3, t, 6).to_bytes()),
    ("pending by ingest time", lambda t: PendingKey(1, 2, t, 6).to_bytes()),
    ("chunks by hour", lambda t: keys.chunk(1, 2, 3, t, 5, 6)),
    ("timelines by hour", lambda t: keys.timeline(1, 2, t, 5, 6)),
    ("hours by day", lambda t: keys.hours(1, 2, 3, t, 5, 6)),
    ("ledger by minute", lambda t: keys.ledger(1, t, 2, 3)),
    ("dead by ingest time", lambda t: keys.dead(1, t, b"m" * 16)),
]


@pytest.mark.parametrize("make", [m for _, m in NEWER], ids=[n for n, _ in NEWER])
@given(a=HOUR, b=HOUR)
def test_newer_sorts_first_in(make: Callable[[int], bytes], a: int, b: int) -> None:
    assert (make(a) < make(b)) == (a > b)


Place = tuple[int, int]  # shard, app


@given(st.tuples(BYTE, WORD), st.tuples(BYTE, WORD), LONG, WORD)
def test_no_row_of_one_tenant_lies_in_a_range_of_another(mine: Place, other: Place, number: int, word: int) -> None:
    for table, make in MAKERS.items():
        key = make(*other, number, word)
        ranges = ranges_of(table, *mine)
        inside = any(start <= key < stop for start, stop in ranges)
        assert inside == (mine == other if table in SHARDED else mine[1] == other[1]), table


SHARDED = {"log", "pending", "chunks", "timelines", "inputs", "hours", "days"}


def ranges_of(table: str, shard: int, app: int) -> list[tuple[bytes, bytes]]:
    """The ranges in which a reader looks for rows of an app."""
    if table in SHARDED:
        return [keys.log_range(shard, app) if table == "log" else keys.app_range(shard, app)]
    if table == "series":
        return keys.series_ranges(app)
    if table == "manifest":
        return keys.manifest_ranges(app)
    if table == "ledger":
        return [keys.ledger_range(app)]

    return [keys.prefix_range(app.to_bytes(4, "big"))]


@given(BYTE, WORD, HOUR, HOUR, LONG)
def test_the_range_of_a_hour_holds_its_blocks_only(shard: int, app: int, hour: int, other: int, number: int) -> None:
    start, stop = keys.log_range(shard, app, hour)
    assert (start <= LogKey(shard, app, other, number, number).to_bytes() < stop) == (hour == other)


@given(st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 1000))
def test_the_range_of_minutes_holds_both_ends(first: int, last: int, minute: int) -> None:
    start, stop = keys.ledger_range(5, first, last)
    assert (start <= keys.ledger(5, minute, 1, 2) < stop) == (first <= minute <= last)


@given(st.binary(min_size=1, max_size=5), st.binary(max_size=8))
def test_a_prefix_range_holds_exactly_the_keys_with_that_prefix(prefix: bytes, key: bytes) -> None:
    start, stop = keys.prefix_range(prefix)
    assert (start <= key < stop) == key.startswith(prefix)


@pytest.mark.parametrize(
    ("prefix", "stop"),
    [
        (b"a", b"b"),
        (b"a\xff", b"b"),
        (b"\x00", b"\x01"),
        (b"a\xff\xff", b"b"),
        (b"\xff\xff", b"\xff" * 64),
        (b"", b"\xff" * 64),
    ],
    ids=["plain", "carry", "zero", "two carries", "nothing above", "everything"],
)
def test_a_prefix_range_ends_before(prefix: bytes, stop: bytes) -> None:
    assert keys.prefix_range(prefix) == (prefix, stop)


@given(BYTE, WORD, WORD, LONG, WORD)
def test_a_key_names_its_app_whatever_else_it_holds(shard: int, app: int, other: int, number: int, word: int) -> None:
    for table, make in MAKERS.items():
        assert keys.app_of(table, make(shard, app, number, word)) == app
        keys.check_app(app, table, [make(shard, app, number, word)])
        if other != app:
            with pytest.raises(IntegrityError, match=f"app {other}"):
                keys.check_app(other, table, [make(shard, app, number, word)])


def test_days_and_months_never_share_a_manifest_row() -> None:
    assert keys.manifest(7, 650) != keys.manifest_month(7, 650)


@given(WORD, st.integers(1, 16), st.integers(1, 256), st.lists(LONG, min_size=1, max_size=20))
def test_metrics_lie_only_in_shards_that_a_reader_looks_in(app: int, spread: int, shards: int, ids: list[int]) -> None:
    table = PlacementTable.single(shards=shards, spread=spread)
    placed = table.place(app, np.array(ids, np.uint64))
    assert placed.dtype == np.uint8
    assert set(placed.tolist()) <= set(table.all_shards(app))


def test_the_layout_of_keys_is_frozen() -> None:
    assert (
        LogKey(3, 7, 472_000, 1_699_300_000_000, 9).to_bytes().hex()
        == "0300000007fff8cc3ffffffe7459d3beff0000000000000009"
    )
    assert keys.chunk(3, 7, 1, 472_000, 5, 2).hex() == "03000000070000000000000001fff8cc3f00000000000000050002"
    assert keys.series(7, 1, 2).hex() == "090000000700000000000000010000000000000002"
    assert keys.manifest(7, 19_666).hex() == "0300000007ffffb32d"
