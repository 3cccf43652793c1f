"""Claims about reading hours whose pages are in the cache: looked up together, each by its own rules."""

from collections.abc import Sequence
from typing import Any

import pytest

from spm import limits
from spm.clock import FakeClock
from spm.errors import IntegrityError, QueryTooLarge
from spm.limits import HOUR_MS
from spm.query.reader import AppStorage
from spm.query.request.batches import Matcher
from spm.query.view import hour_reader
from spm.query.view.decoded_rows import TIMELINES_OF_PAGES, PageCache
from spm.query.view.view import View
from spm.store import keys
from spm.store.backends.base import Backend
from spm.store.backends.memory import MemoryBackend
from spm.store.versions import retractions
from spm.store.versions.retractions import Retraction
from spm.wire import Envelope
from tests.support.faults import Faulty, flip, keys_of
from tests.support.rows import APP, HOUR, START, envelope, plain, stored
from tests.support.store_reader import EVERY, look, reader, roll

HOURS = 4
NOW = START + (HOURS + 1) * HOUR_MS
END = START + HOURS * HOUR_MS
SENT = [envelope([(s, START + h * HOUR_MS + s + 1, 10.0 * h + s) for s in range(6)], sequence=h) for h in range(HOURS)]
ALL = plain(SENT)


def cached_reader(backend: Backend, *, but: int | None = None, clock: FakeClock | None = None) -> AppStorage:
    """A reader that has the pages of every hour in its cache, except those of the hour ``but``."""
    storage = reader(backend, clock=clock or FakeClock(NOW))
    for hour in range(HOURS):
        if hour != but:
            look(storage, START + hour * HOUR_MS, START + (hour + 1) * HOUR_MS)
    return storage


def rolled(*sent: Envelope) -> MemoryBackend:
    backend = MemoryBackend()
    stored(*(sent or SENT), backend=backend)
    roll(backend, 5)
    return backend


def chunks_of(backend: Backend, hour: int) -> list[bytes]:
    return [key for key in keys_of(backend, "chunks") if keys.parse_chunk(key)[3] == HOUR + hour]


def without_hour(hour: int) -> dict[tuple[bytes, int], int]:
    begin = START + hour * HOUR_MS
    return {at: value for at, value in ALL.items() if not begin < at[1] <= begin + HOUR_MS}


@pytest.mark.parametrize("at_once", [1, 12, 10_000], ids=["hour by hour", "two by two", "all together"])
def test_an_answer_is_the_same_however_many_hours_are_looked_up_together(
    monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(hour_reader, "_RUNS_AT_ONCE", at_once)
    storage = cached_reader(rolled())
    assert look(storage) == ALL
    assert look(storage, START + 3, END - HOUR_MS + 3) == {  # the first and the last hour are cut
        at: value for at, value in ALL.items() if START + 3 < at[1] <= END - HOUR_MS + 3
    }


def test_hours_in_the_cache_are_not_read_again() -> None:
    backend = Faulty(rolled())
    storage = cached_reader(backend)
    backend.calls.clear()
    assert look(storage) == ALL
    assert not {"get chunks", "get timelines", "get inputs"} & set(backend.calls)


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The table of each look-up in the cache, without those of manifests."""
    tables, cached = list[str](), PageCache.cached

    def recording(cache: PageCache, table: str, row_keys: Sequence[bytes]) -> list[object | None]:
        tables.extend({table} - {"manifest"})
        return cached(cache, table, row_keys)

    monkeypatch.setattr(PageCache, "cached", recording)
    return tables


def test_hours_in_the_cache_are_looked_up_together(lookups: list[str]) -> None:
    storage = cached_reader(rolled())
    lookups.clear()
    assert look(storage) == ALL
    assert lookups == ["chunks", TIMELINES_OF_PAGES]


def test_an_hour_that_is_not_in_the_cache_is_read_in_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Faulty(rolled())
    monkeypatch.setattr(limits, "QUERY_SAMPLES_MAX", 7)
    with pytest.raises(QueryTooLarge):
        look(reader(backend, clock=FakeClock(NOW)))
    assert backend.calls.count("get chunks") == 2


@pytest.mark.parametrize("series", [0, 4], ids=["of one metric", "of another"])
def test_a_damaged_page_between_sound_ones_is_left_out_alone(series: int) -> None:
    backend = rolled()
    metric = keys.parse_chunk(chunks_of(backend, 1)[series % 3])[2]
    [damaged] = [key for key in chunks_of(backend, 1) if keys.parse_chunk(key)[2] == metric]
    flip(backend, "chunks", damaged, b"v", 300)
    storage = cached_reader(backend)
    answer = look(storage)
    assert without_hour(1).items() < answer.items() < ALL.items()
    assert look(storage) == answer
    assert storage.damaged_count() == 1


def test_pages_that_are_missing_in_one_hour_are_an_integrity_error() -> None:
    backend = rolled()
    storage = cached_reader(backend, but=2)
    backend.delete("chunks", [(key, None) for key in chunks_of(backend, 2)])
    with pytest.raises(IntegrityError, match="is missing"):
        look(storage)


def test_a_query_whose_view_of_one_hour_is_outdated_starts_again() -> None:
    backend = Faulty(rolled())
    storage = cached_reader(backend, but=2)
    calls: list[str] = []

    def run_and_purge(call: str) -> None:
        if call == "get chunks" and not calls:
            calls.append(call)
            old = keys_of(backend.inner, "chunks")
            roll(backend.inner, 6)
            backend.inner.delete("chunks", [(key, None) for key in old])

    backend.hook = run_and_purge
    assert look(storage) == ALL
    assert calls


def test_an_hour_with_newer_samples_between_settled_ones_shows_the_newest() -> None:
    backend, clock = rolled(), FakeClock(NOW)
    storage = cached_reader(backend, clock=clock)
    newer = envelope([(1, START + HOUR_MS + 2, -1.0), (9, START + HOUR_MS + 7, 5.0)], sequence=99)
    stored(newer, backend=backend)
    clock.advance(limits.TAIL_AGE_MS + 1)
    assert look(storage) == plain([*SENT, newer])


def test_hours_without_selected_series_are_not_in_the_provenance(lookups: list[str]) -> None:
    backend = rolled(*SENT[:3], envelope([(9, START + 3 * HOUR_MS + 1, 1.0)], sequence=3))
    matchers = [*EVERY, Matcher("host", "=", "h0")]  # of the same metric as h9
    expected, storage = reader(backend, clock=FakeClock(NOW)).select(matchers, START, END), cached_reader(backend)
    lookups.clear()
    batch = storage.select(matchers, START, END)
    assert lookups == ["chunks", TIMELINES_OF_PAGES]
    assert batch.provenance == expected.provenance
    assert batch.ts.tolist() == expected.ts.tolist() == [START + h * HOUR_MS + 1 for h in range(3)]


@pytest.mark.parametrize(("samples", "fits"), [(24, True), (23, False), (13, False)])
def test_hours_in_the_cache_count_towards_the_samples_of_a_query(
    monkeypatch: pytest.MonkeyPatch, samples: int, fits: bool
) -> None:
    storage = cached_reader(rolled())
    monkeypatch.setattr(limits, "QUERY_SAMPLES_MAX", samples)
    if fits:
        assert look(storage) == ALL
    else:
        with pytest.raises(QueryTooLarge, match="samples"):
            look(storage)


def test_a_query_ends_at_the_hour_in_which_it_has_read_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "QUERY_SAMPLES_MAX", 7)
    checks: list[None] = []
    with pytest.raises(QueryTooLarge):
        reader(rolled(), clock=FakeClock(NOW)).select(EVERY, START, END, check_deadline=lambda: checks.append(None))
    assert len(checks) == checks_of_new_names() + 1 + 2  # one for the batch, and the first two hours


@pytest.mark.parametrize(("at_once", "batches"), [(1, HOURS), (12, 2), (10_000, 1)])
def test_a_query_checks_its_deadline_once_for_some_hours_in_the_cache(
    monkeypatch: pytest.MonkeyPatch, at_once: int, batches: int
) -> None:
    monkeypatch.setattr(hour_reader, "_RUNS_AT_ONCE", at_once)
    assert checks_of_hours(cached_reader(rolled())) == checks_of_names() + batches


def test_a_query_checks_its_deadline_before_each_hour_that_it_reads_from_the_store() -> None:
    assert checks_of_hours(cached_reader(rolled(), but=2)) == checks_of_names() + 1 + 1
    assert checks_of_hours(reader(rolled(), clock=FakeClock(NOW))) == checks_of_new_names() + 1 + HOURS


def checks_of_hours(storage: AppStorage, start_ms: int = START, end_ms: int = END) -> int:
    """How often a query of all series checks its deadline."""
    checks: list[None] = []
    storage.select(EVERY, start_ms, end_ms, check_deadline=lambda: checks.append(None))
    return len(checks)


def checks_of_names() -> int:
    """How often the names alone check the deadline: for an hour without samples."""
    return checks_of_hours(cached_reader(rolled()), END + HOUR_MS, END + 2 * HOUR_MS)


def checks_of_new_names() -> int:
    """How often names alone check it that were never matched before."""
    return checks_of_hours(reader(rolled(), clock=FakeClock(NOW)), END + HOUR_MS, END + 2 * HOUR_MS)


def piecemeal(*, again: bool = False) -> tuple[AppStorage, list[Envelope], Backend]:
    """A reader of one hour that has a generation, and a tail of several pieces."""
    sizes = [9, 135, 36, 9]  # so that their pieces stay apart
    sent = [
        envelope([(s % 9, START + 1 + 100 * n + s // 9, float(s)) for s in range(size)], sequence=n)
        for n, size in enumerate(sizes)
    ]
    backend, clock = MemoryBackend(), FakeClock(NOW)
    stored(sent[0], backend=backend)
    roll(backend, 5)
    storage = reader(backend, clock=clock)
    for n, each in enumerate(sent[1:]):
        stored(each, backend=backend)
        if n == 2 and again:
            sent.append(envelope([(1, START + 101, 99.0)], sequence=9))
            stored(sent[-1], backend=backend)
        clock.advance(2_000)
        look(storage)
    pieces = next(iter(storage._state.tail.view().by_shard_hour.values()))
    assert pieces is not None
    assert len(pieces) > 1
    return storage, sent, backend


def test_a_few_series_are_gathered_from_all_pieces_of_an_hour_without_merging_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    storage, sent, _ = piecemeal()
    monkeypatch.setattr(View, "winners", lambda *_: pytest.fail("merged"))
    assert look(storage) == plain(sent)
    assert look(storage, START + 100, START + 202) == {
        at: value for at, value in plain(sent).items() if START + 100 < at[1] <= START + 202
    }
    batch = storage.select(EVERY, START + 1, START + 5)
    assert not len(batch.ts)
    assert batch.provenance.ranges  # the hour has samples of these series


def test_they_are_merged_where_two_messages_have_another_value_of_one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    storage, sent, _ = piecemeal(again=True)
    merged: list[int] = []
    winners = View.winners

    def noted(self: View, hour: int, *more: Any) -> Any:
        merged.append(hour)
        return winners(self, hour, *more)

    monkeypatch.setattr(View, "winners", noted)
    assert look(storage) == plain(sent)
    assert merged


@pytest.mark.parametrize("how", ["many", "past", "retracted"])
def test_what_a_gathering_cannot_choose_is_merged(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, sent, backend = piecemeal()
    expected = plain(sent)
    if how == "many":
        monkeypatch.setattr("spm.query.view.view.GATHERED_SERIES_MAX", 8)
    elif how == "past":
        storage = storage.asof(2 * NOW)
    else:
        retractions.add(backend, APP, Retraction(0, NOW, 0, 0, 2 * NOW, START, START + 10, "", (), "wrong", "me"))
        expected = {at: value for at, value in expected.items() if at[1] > START + 10}
    monkeypatch.setattr("spm.query.view.view.gather", lambda *_: pytest.fail("gathered"))
    assert look(storage) == expected
