"""A15, A18, A26 to A28, A30 and A32: what writing costs, and where rows come to lie."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingest.accept.stamper import Stamper
from ingest.writer import Writer
from rollups.decide.retention import RetentionPeriods
from rollups.delete import expire
from rollups.delete.purge import purge
from rollups.move.redistribute import close_epoch, migrate
from rollups.run.driver import Driver
from rollups.run.local import LocalExecutor
from spm.clock import FakeClock
from spm.limits import HOUR_MS
from spm.query.reader import AppStorage
from spm.query.request.batches import Matcher
from spm.query.view.decoded_rows import PageCache
from spm.store import epochs, keys
from spm.store.backends.memory import MemoryBackend
from spm.store.keys import PlacementEpoch, PlacementTable
from spm.wire import SeriesTable, canonical
from tests.model.world import APP, NEXT_DAY, SPREAD, START, Sample, World, parsed
from tests.support.faults import Faulty

Note = Callable[[str], None]


@pytest.mark.seed("A15", compares="messages stamped by clocks five minutes off either way: samples with the model")
@given(st.lists(st.tuples(st.integers(-300_000, 300_000), st.integers(0, 2), st.integers(1, 4)), max_size=8))
def test_a15_clocks_that_are_five_minutes_wrong_lose_and_double_nothing(sent: list[tuple[int, int, int]]) -> None:
    """A clock chooses which stamp a sample gets, never whether it is kept: each process number is used once."""
    world = World()
    for number, (off_ms, series, ms) in enumerate(sent, start=2):
        world.acceptor = Stamper(number, FakeClock(world.clock.now_ms() + off_ms))
        world.send((series, ms, float(number)))
        if number % 3 == 0:
            world.roll(minor=True)
    world.roll()
    assert world.answer() == world.truth
    assert len(world.model.versions) == len(sent)


def skewed(world: World, off_ms: int) -> FakeClock:
    """The clock of a node that is so wrong."""
    return FakeClock(world.clock.now_ms() + off_ms)


def of_a_skewed_node(world: World, act: str, off_ms: int, number: int, samples: list[Sample]) -> None:
    """One act on a node of its own; an accepting node has a process number of its own, too."""
    driver = Driver(world.store, skewed(world, off_ms))
    runner, now_ms = LocalExecutor(world.store), NEXT_DAY + off_ms
    if act == "accept":
        world.acceptor = Stamper(number, skewed(world, off_ms))
        world.send(*samples)
    elif act == "read":
        storage = AppStorage(world.store, APP, placement=SPREAD, clock=skewed(world, off_ms), cache=PageCache())
        assert world.answer(storage) == world.truth
    elif act == "purge":
        purge(world.store, APP, keep=number % 3)
    elif act == "move":
        strategy, shards, spread = SPREADS[number % len(SPREADS)]
        if world.spread().newest.shards != shards:
            epochs.open_epoch(world.store, APP, function=strategy, shards=shards, spread=spread)
        migrate(driver, runner, APP, now_ms=now_ms)
        for epoch in world.spread().epochs[:-1]:
            close_epoch(world.store, APP, epoch.number)
    elif act == "retain":
        expire.expire(driver, runner, APP, RetentionPeriods(raw_days=1), now_ms=START + 48 * HOUR_MS + off_ms)
        world.seals()
    else:
        driver.roll(runner, [APP], minor=act == "minor run", now_ms=now_ms)


ACTS = ["accept", "accept", "accept", "read", "purge", "move", "minor run", "full run", "retain"]
SPREADS = [("byte", 32, 1), ("hash", 12, 4), ("hash", 8, 8)]
SKEWED = st.lists(
    st.tuples(
        st.sampled_from(ACTS),
        st.integers(-300_000, 300_000),
        st.lists(
            st.tuples(st.integers(0, 3), st.integers(1, 26 * HOUR_MS), st.integers(-9, 9).map(float)),
            min_size=1,
            max_size=3,
        ),
    ),
    max_size=10,
)


@pytest.mark.seed("A15", compares="answers and accounts with the model: each act on a node up to 5 min off")
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(SKEWED)
def test_a15_no_clock_of_any_node_decides_what_is_kept_or_counted(
    figure: Note, acts: list[tuple[str, int, list[Sample]]]
) -> None:
    """Acceptance, runs, moves, purges, retention and reading, each by a clock of its own, in any order."""
    world = World()
    for number, (act, off_ms, samples) in enumerate(acts, start=2):
        of_a_skewed_node(world, act, off_ms, number, samples)
    for off_ms in (-300_000, 300_000):
        of_a_skewed_node(world, "read", off_ms, 0, [])
        assert world.hours() == world.model.hours()
        assert world.days() == world.model.days()
        of_a_skewed_node(world, "full run", off_ms, 0, [])
    assert world.accounts() == world.model.accounts()
    figure("9 kinds of acts, each node up to 5 min off, 0 differences")


@pytest.mark.seed("A18", compares="reads of the store while 10 and while 10,000 samples of known series are written")
def test_a18_writing_reads_nothing_per_sample(figure: Note) -> None:
    store = Faulty(MemoryBackend())
    writer, acceptor = Writer(store, PlacementTable()), Stamper(1, FakeClock(START))

    def calls(count: int) -> list[str]:
        store.calls.clear()
        samples = [(i % 5, i + 1, 1.0) for i in range(count)]
        writer.write([acceptor.stamp_message(app=APP, source="a", parsed=parsed(samples), message_id=bytes(16))])
        return [call for call in store.calls if call.startswith(("get", "scan"))]

    calls(10)  # the series become known
    few, many = calls(10), calls(10_000)
    assert few == many
    assert "log" not in " ".join(many)
    figure(f"{len(many)} reads for 10,000 samples")


@pytest.mark.seed("A26", compares="metrics with sequential names over 16 shards: fullest with mean")
def test_a26_sequential_names_load_all_shards_equally(figure: Note) -> None:
    """For an app that is spread; a small one lies in one shard, and apps spread over all of them."""
    forms = [canonical(f"metric_{i:06}", {}) for i in range(20_000)]
    metrics = SeriesTable.from_canonical(forms).metrics
    loads = np.bincount(PlacementTable.single(shards=16, spread=16).place(APP, metrics), minlength=16)
    assert loads.max() / loads.mean() <= 1.1
    figure(f"max / mean = {loads.max() / loads.mean():.3f}")


@pytest.mark.seed("A26", compares="50,000 small apps over 16 shards: fullest with mean")
def test_a26_small_apps_load_all_shards_equally(figure: Note) -> None:
    loads = np.bincount([PlacementTable().all_shards(app)[0] for app in range(1, 50_001)], minlength=16)
    assert loads.max() / loads.mean() <= 1.1
    figure(f"max / mean = {loads.max() / loads.mean():.3f}")


BOUNDS = st.tuples(st.integers(-1, 6 * HOUR_MS), st.integers(-1, 6 * HOUR_MS)).map(sorted)
MANY = tuple((series, h * HOUR_MS + series + 1, float(series * h)) for series in range(9) for h in range(5))


@pytest.mark.seed("A26", compares="a million metrics over 2 to 256 shards, by hash: fullest with mean")
def test_a26_an_app_that_is_spread_loads_any_number_of_shards_equally(figure: Note) -> None:
    metrics = np.random.default_rng(26).integers(0, 2**64, 1 << 20, np.uint64)
    worst = 0.0
    for shards in (2, 3, 7, 12, 16, 31, 32, 37, 64, 100, 128, 200, 255, 256):
        loads = np.bincount(PlacementEpoch(0, keys.HASH, shards, shards).place(APP, metrics), minlength=shards)
        worst = max(worst, loads.max() / loads.mean())
    assert worst <= 1.1
    figure(f"max / mean = {worst:.3f} at worst of 14 numbers of shards")


@pytest.mark.seed("A27", compares="a select over 1 and over 16 shards: series, times, values, in their order")
@given(BOUNDS, st.booleans())
def test_a27_a_scan_over_many_shards_is_a_scan_over_one(bounds: list[int], rolled: bool) -> None:
    stamps = []
    for placed in (PlacementTable.single(spread=1), PlacementTable.single(spread=16)):
        world = World(placement=placed)
        world.send(*MANY)
        if rolled:
            world.roll()
        batch = world.fresh().select([Matcher("n", "=~", "[0-9]+")], START + bounds[0], START + bounds[1])
        rows = zip(batch.labels, np.split(batch.ts, batch.offsets[1:-1]), strict=True) if batch.labels else ()
        stamps.append([(labels["n"], ts.tolist()) for labels, ts in rows])
    wanted: dict[str, list[int]] = {}
    for series, ms, _ in MANY:
        if bounds[0] < ms <= bounds[1]:
            wanted.setdefault(str(series), []).append(START + ms)
    assert stamps[0] == stamps[1], "the same rows in the same order"
    assert dict(stamps[0]) == wanted


@pytest.mark.seed("A28", compares="for 1 to 256 shards: the shard of every key, with those a reader looks in")
def test_a28_every_key_is_found_by_one_get_for_every_number_of_shards(figure: Note) -> None:
    metrics = SeriesTable.from_canonical([canonical(f"m{i}", {}) for i in range(300)]).metrics
    for shards in range(1, 257):
        for epoch in (PlacementEpoch(0, keys.BYTE, shards, shards), PlacementEpoch(0, keys.HASH, shards, shards)):
            pairs = epoch.place(APP, metrics)
            assert pairs.tolist() == epoch.place(APP, metrics).tolist()  # nothing but the key decides
            assert set(pairs.tolist()) <= set(epoch.all_shards(APP))
    figure("256 numbers of shards, 2 strategies, 300 keys each")


@pytest.mark.seed("A28", compares="rows asked of the store for one series of one hour, with the rows it lies in")
def test_a28_one_series_of_one_hour_is_read_by_its_exact_keys(figure: Note) -> None:
    world = World(store := Faulty(MemoryBackend()))
    world.send((0, 1, 1.0), (1, 2, 2.0))
    world.roll()
    reader = world.fresh()
    reader.select([Matcher("n", "=", "0")], START, START + HOUR_MS)
    store.calls.clear()
    world.clock.advance(60_000)
    reader.select([Matcher("n", "=", "1")], START, START + HOUR_MS)
    assert [call for call in store.calls if "chunks" in call] == ["get chunks"]
    figure("1 get of chunks")


@pytest.mark.seed("A30", compares="keys of later hours, stamps and days with those of earlier ones, in byte order")
@given(st.integers(0, 2**32 - 2), st.integers(1, 2**31), st.integers(0, 2**40))
def test_a30_newer_rows_sort_first_in_every_table(hour: int, later: int, ms: int) -> None:
    new = min(hour + later, 2**32 - 1)
    assert keys.chunk(1, APP, 5, new, 1, 0) < keys.chunk(1, APP, 5, hour, 1, 0)
    assert keys.timeline(1, APP, new, 1, 0) < keys.timeline(1, APP, hour, 1, 0)
    assert keys.LogKey(1, APP, new, ms, 1).to_bytes() < keys.LogKey(1, APP, hour, ms, 1).to_bytes()
    assert keys.PendingKey(1, APP, ms + later, 1).to_bytes() < keys.PendingKey(1, APP, ms, 1).to_bytes()


LABELS = st.dictionaries(st.text(max_size=6), st.text(max_size=6), max_size=4)


@pytest.mark.seed("A30", compares="canonical forms of two label sets: equal bytes with equal labels")
@given(st.text(max_size=6), LABELS, st.text(max_size=6), LABELS)
def test_a30_no_two_series_have_one_form(metric: str, labels: dict[str, str], other: str, more: dict[str, str]) -> None:
    assert (canonical(metric, labels) == canonical(other, more)) == ((metric, labels) == (other, more))


TRICKY = ["", "a", "b", "ab", "a=b", "a,b", "a\x00b", "\x00", "\x01a", "é", "a" * 256, "a" * 257, '"', "}"]


@pytest.mark.seed("A30", compares="forms and ids of label sets made of separators, with the label sets")
def test_a30_labels_made_of_separators_never_make_one_key_of_two(figure: Note) -> None:
    """Every text stands behind its length, so no text can look like the border of two."""
    labels = [{name: value} for name in TRICKY for value in TRICKY if value]
    labels += [{a: x, b: y} for a, b in itertools.combinations(TRICKY, 2) for x in TRICKY[1:6] for y in TRICKY[1:6]]
    forms = [canonical(metric, each) for metric in TRICKY for each in labels]
    table = SeriesTable.from_canonical(forms)
    pairs = set(zip(table.metrics.tolist(), table.ids.tolist(), strict=True))
    assert len(set(forms)) == len(forms) == len(pairs) == len({keys.series(APP, *pair) for pair in pairs})
    figure(f"{len(forms):,} label sets, 0 collisions")


@pytest.mark.seed("A30", compares="the first rows of a scan of one metric with its newest hours")
@given(st.sets(st.integers(0, 600_000), min_size=1, max_size=30))
def test_a30_a_scan_of_one_metric_begins_with_its_newest_hour(hours: set[int]) -> None:
    store = MemoryBackend()
    store.put([("chunks", [(keys.chunk(3, APP, 5, hour, 1, 0), {b"v": b"x"}) for hour in hours])])
    store.put([("chunks", [(keys.chunk(3, APP, metric, 700_000, 1, 0), {b"v": b"x"}) for metric in (4, 6)])])
    start, stop = keys.prefix_range(keys.chunk(3, APP, 5, 0, 0, 0)[:13])
    stamps = [keys.parse_chunk(key)[3] for key, _ in store.scan("chunks", start, stop, limit=5)]
    assert stamps == sorted(hours, reverse=True)[:5]


@pytest.mark.seed("A32", compares="samples of a metric and labels nobody announced, with what is read at once")
def test_a32_new_metrics_and_labels_need_no_schema(figure: Note) -> None:
    world = World()
    world.send((0, 1, 1.0))
    assert world.answer(world.readers) == world.truth
    world.clock.advance(2_000)  # the age of a cached tail
    world.send((1, 2, 2.0), (99, 3, 3.0))
    assert world.answer(world.readers) == world.truth
    figure("2 new metrics and series in a message, read by a process that lived before")
