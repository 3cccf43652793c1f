"""A15, A18, A26 to A28, A30 and A32: what writing costs, and where rows come to lie."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.accept import Acceptor
from ingest.write import Writer
from spm.clock import FakeClock
from spm.limits import HOUR_MS
from spm.query.select import Matcher
from spm.store import keys
from spm.store.backends.memory import MemoryBackend
from spm.store.keys import Distribution, Epoch
from spm.wire import SeriesTable, canonical
from tests.rollups.world import APP, START, World, parsed
from tests.store.faults import Faulty

Note = Callable[[str], None]


@pytest.mark.seed("A15", compares="messages stamped by clocks five minutes off either way: samples with the model")
@given(st.lists(st.tuples(st.integers(-300_000, 300_000), st.integers(0, 2), st.integers(1, 4)), max_size=8))
def test_a15_clocks_that_are_five_minutes_wrong_lose_and_double_nothing(sent: list[tuple[int, int, int]]) -> None:
    """A clock chooses which stamp a sample gets, never whether it is kept: each process number is used once."""
    world = World()
    for number, (off_ms, series, ms) in enumerate(sent, start=2):
        world.acceptor = Acceptor(number, FakeClock(world.clock.now_ms() + off_ms))
        world.send((series, ms, float(number)))
        if number % 3 == 0:
            world.roll(minor=True)
    world.roll()
    assert world.answer() == world.truth
    assert len(world.model.versions) == len(sent)


@pytest.mark.seed("A18", compares="reads of the store while 10 and while 10,000 samples of known series are written")
def test_a18_writing_reads_nothing_per_sample(figure: Note) -> None:
    store = Faulty(MemoryBackend())
    writer, acceptor = Writer(store, Distribution()), Acceptor(1, FakeClock(START))

    def calls(count: int) -> list[str]:
        store.calls.clear()
        samples = [(i % 5, i + 1, 1.0) for i in range(count)]
        writer.write([acceptor.accept(app=APP, source="a", parsed=parsed(samples), message_id=bytes(16))])
        return [call for call in store.calls if call.startswith(("get", "scan"))]

    calls(10)  # the series become known
    few, many = calls(10), calls(10_000)
    assert few == many
    assert "log" not in " ".join(many)
    figure(f"{len(many)} reads for 10,000 samples")


@pytest.mark.seed("A26", compares="metrics with sequential names over 16 buckets: fullest with mean")
def test_a26_sequential_names_load_all_buckets_alike(figure: Note) -> None:
    """For an app that is spread; a small one lies in one bucket, and apps spread over all of them."""
    forms = [canonical(f"metric_{i:06}", {}) for i in range(20_000)]
    metrics = SeriesTable.from_canonical(forms).metrics
    loads = np.bincount(Distribution.single(buckets=16, spread=16).of(APP, metrics), minlength=16)
    assert loads.max() / loads.mean() <= 1.1
    figure(f"max / mean = {loads.max() / loads.mean():.3f}")


@pytest.mark.seed("A26", compares="50,000 small apps over 16 buckets: fullest with mean")
def test_a26_small_apps_load_all_buckets_alike(figure: Note) -> None:
    loads = np.bincount([Distribution().all(app)[0] for app in range(1, 50_001)], minlength=16)
    assert loads.max() / loads.mean() <= 1.1
    figure(f"max / mean = {loads.max() / loads.mean():.3f}")


BOUNDS = st.tuples(st.integers(-1, 6 * HOUR_MS), st.integers(-1, 6 * HOUR_MS)).map(sorted)
MANY = tuple((series, h * HOUR_MS + series + 1, float(series * h)) for series in range(9) for h in range(5))


@pytest.mark.seed("A27", compares="a select over 1 and over 16 buckets: series, times, values, in their order")
@given(BOUNDS, st.booleans())
def test_a27_a_scan_over_many_buckets_is_a_scan_over_one(bounds: list[int], rolled: bool) -> None:
    found = []
    for distribution in (Distribution.single(spread=1), Distribution.single(spread=16)):
        world = World(distribution=distribution)
        world.send(*MANY)
        if rolled:
            world.roll()
        batch = world.fresh().select([Matcher("n", "=~", "[0-9]+")], START + bounds[0], START + bounds[1])
        rows = zip(batch.labels, np.split(batch.ts, batch.offsets[1:-1]), strict=True) if batch.labels else ()
        found.append({labels["n"]: ts.tolist() for labels, ts in rows})
    wanted: dict[str, list[int]] = {}
    for series, ms, _ in MANY:
        if bounds[0] < ms <= bounds[1]:
            wanted.setdefault(str(series), []).append(START + ms)
    assert found == [wanted, wanted]


@pytest.mark.seed("A28", compares="for 1 to 256 buckets: the bucket of every key, with those a reader looks in")
def test_a28_every_key_is_found_by_one_get_for_every_number_of_buckets(figure: Note) -> None:
    metrics = SeriesTable.from_canonical([canonical(f"m{i}", {}) for i in range(300)]).metrics
    for buckets in range(1, 257):
        for epoch in (Epoch(0, keys.BYTE, buckets, buckets), Epoch(0, keys.HASH, buckets, buckets)):
            made = epoch.of(APP, metrics)
            assert made.tolist() == epoch.of(APP, metrics).tolist()  # nothing but the key decides
            assert set(made.tolist()) <= set(epoch.all(APP))
    figure("256 numbers of buckets, 2 strategies, 300 keys each")


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


@pytest.mark.seed("A30", compares="keys of later slots, stamps and days with those of earlier ones, in byte order")
@given(st.integers(0, 2**32 - 2), st.integers(1, 2**31), st.integers(0, 2**40))
def test_a30_newer_rows_sort_first_in_every_table(slot: int, later: int, ms: int) -> None:
    new = min(slot + later, 2**32 - 1)
    assert keys.chunk(1, APP, 5, new, 1, 0) < keys.chunk(1, APP, 5, slot, 1, 0)
    assert keys.timeline(1, APP, new, 1, 0) < keys.timeline(1, APP, slot, 1, 0)
    assert keys.LogKey(1, APP, new, ms, 1).to_bytes() < keys.LogKey(1, APP, slot, ms, 1).to_bytes()
    assert keys.PendingKey(1, APP, ms + later, 1).to_bytes() < keys.PendingKey(1, APP, ms, 1).to_bytes()


LABELS = st.dictionaries(st.text(max_size=6), st.text(max_size=6), max_size=4)


@pytest.mark.seed("A30", compares="canonical forms of two label sets: equal bytes with equal labels")
@given(st.text(max_size=6), LABELS, st.text(max_size=6), LABELS)
def test_a30_no_two_series_have_one_form(metric: str, labels: dict[str, str], other: str, more: dict[str, str]) -> None:
    assert (canonical(metric, labels) == canonical(other, more)) == ((metric, labels) == (other, more))


@pytest.mark.seed("A32", compares="samples of a metric and labels nobody announced, with what is read at once")
def test_a32_new_metrics_and_labels_need_no_schema() -> None:
    world = World()
    world.send((0, 1, 1.0))
    assert world.answer(world.readers) == world.truth
    world.clock.advance(2_000)  # the age of a cached tail
    world.send((1, 2, 2.0), (99, 3, 3.0))
    assert world.answer(world.readers) == world.truth
