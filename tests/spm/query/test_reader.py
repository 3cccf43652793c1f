"""Claims about reading: any history of writes, runs and roll backs answers like a plain dict (PROTOCOL 9, 10, 11)."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.writer import Writer
from spm import limits, wire
from spm.bounded import LruCache
from spm.clock import FakeClock
from spm.errors import IntegrityError, QueryTimeout, QueryTooLarge, StoreUnavailable
from spm.limits import HOUR_MS
from spm.query.reader import AppStorage
from spm.query.request.batches import Matcher
from spm.store import keys, matchers
from spm.store.backends import lmdb, open_backend
from spm.store.backends.base import Backend
from spm.store.backends.memory import MemoryBackend
from spm.store.keys import PlacementTable
from spm.store.versions import retractions
from spm.store.versions.retractions import Retraction
from spm.wire import Envelope
from tests.support.faults import Faulty, keys_of
from tests.support.rows import APP, HOUR, START, envelope, number, plain, stored
from tests.support.store_reader import EVERY, NOW, look, reader, roll

TS = st.tuples(st.sampled_from([-25, -1, 0, 1]), st.integers(1, 4)).map(
    lambda p: START + p[0] * HOUR_MS + p[1] * 900_000
)
SAMPLE = st.tuples(st.integers(0, 5), TS, st.sampled_from([1.0, 2.0, -0.0, number(0x7FF0000000000002)]))
ACT: st.SearchStrategy[tuple[str, list[tuple[int, int, float]]]] = st.one_of(
    st.tuples(st.just("write"), st.lists(SAMPLE, min_size=1, max_size=8)),
    st.tuples(st.sampled_from(["again", "roll", "minor", "half", "replay", "look", "wait"]), st.just([])),
)


@settings(deadline=None, max_examples=120)
@given(st.lists(ACT, min_size=2, max_size=14), st.sampled_from([1, 4]))
def test_every_history_answers_like_a_plain_dict(
    acts: list[tuple[str, list[tuple[int, int, float]]]], spread: int
) -> None:
    backend, clock = MemoryBackend(), FakeClock(NOW)
    writer, old = Writer(backend, PlacementTable.single(spread=spread)), reader(backend, clock=clock, spread=spread)
    sent: list[Envelope] = []
    for at, (act, samples) in enumerate(acts):
        if act == "write":
            sent.append(envelope(samples, ms=1000 + at % 5, sequence=at, source=f"h{at % 2}", process=at % 3))
            writer.write(sent[-1:])
        elif act == "again" and sent:
            writer.write([sent[at % len(sent)]])
        elif act == "wait":
            clock.advance(limits.TAIL_AGE_MS + 1)
        elif act == "look":
            assert look(reader(backend, spread=spread)) == plain(sent)
        else:
            roll(backend, at, spread=spread, settle=act != "half", minor=act == "minor", replay=act == "replay")
    clock.advance(limits.TAIL_AGE_MS + 1)
    assert look(old) == look(old) == plain(sent)  # the second time from the cache, where anything of it may be
    assert look(reader(backend, spread=spread)) == plain(sent)


@given(st.integers(-3, 3), st.integers(0, 4 * 3600))
@settings(deadline=None, max_examples=40)
def test_an_interval_is_open_at_its_start_and_closed_at_its_end(first: int, seconds: int) -> None:
    sent = envelope([(s, START + q * 900_000, float(q)) for s in (1, 2) for q in range(-8, 9)])
    backend = stored(sent)
    start, end = START + first * 900_000, START + first * 900_000 + seconds * 1000
    want = {at: v for at, v in plain([sent]).items() if start < at[1] <= end}
    assert look(reader(backend), start, end) == want
    roll(backend, 5)
    assert look(reader(backend), start, end) == want


def test_versions_in_several_generations_are_merged() -> None:
    sent = [
        envelope([(1, START + 5, 1.0), (1, START + 9, 1.0)], sequence=0),
        envelope([(1, START + 5, 2.0), (1, START + 7, 2.0)], sequence=1),
        envelope([(1, START + 9, 0.0)], ms=1, sequence=2),
    ]
    backend = MemoryBackend()
    for at, one in enumerate(sent):
        stored(one, backend=backend)
        roll(backend, at, minor=True)
        assert look(reader(backend)) == plain(sent[: at + 1])


def test_apps_never_see_each_other() -> None:
    mine, other = envelope([(1, START + 1, 1.0)]), envelope([(1, START + 1, 2.0), (2, START + 1, 2.0)], app=8)
    backend = stored(mine, other)
    for _ in range(2):
        assert look(reader(backend)) == plain([mine])
        assert look(reader(backend, app=8)) == plain([other])
        assert look(reader(backend, app=9)) == {}
        roll(backend, 5)


# --- the tail's age (PROTOCOL 7) --------------------------------------------------------------------------------------


def test_a_new_batch_is_seen_within_the_tails_age_and_the_answer_tells_its_time() -> None:
    backend, clock = MemoryBackend(), FakeClock(1_700_000_000_000)
    old = reader(backend, clock=clock)
    look(old)
    sent = envelope([(1, START + 1, 1.0)])
    stored(sent, backend=backend)
    clock.advance(limits.TAIL_AGE_MS - 1)
    assert look(old) == {}
    assert old.notes() == ["un-compacted data as of 2023-11-14T22:13:20.000Z"]
    clock.advance(1)
    assert look(old) == plain([sent])
    assert look(reader(backend)) == plain([sent])


@pytest.mark.parametrize("fails_at", range(6))
def test_a_store_that_fails_while_the_tail_is_read_hides_nothing_afterwards(fails_at: int) -> None:
    sent = [envelope([(s, START + h * HOUR_MS + 1, 1.0) for h in range(3)], sequence=s) for s in range(3)]
    backend = Faulty(stored(*sent[:2]))
    clock = FakeClock(NOW)
    storage = reader(backend, clock=clock)
    assert look(storage) == plain(sent[:2])
    stored(sent[2], backend=backend.inner)
    clock.advance(2000)
    backend.calls, backend.fails_at = [], fails_at
    with pytest.raises(StoreUnavailable):
        look(storage)
    backend.fails_at = None
    assert look(storage) == plain(sent)


# --- missing rows and moving manifests (PROTOCOL 10) ------------------------------------------------------------------


def lose(backend: Backend, table: str) -> None:
    backend.delete(table, [(key, None) for key in keys_of(backend, table)])


@pytest.mark.parametrize("table", ["chunks", "timelines"])
def test_a_missing_page_is_an_integrity_error_and_not_no_data(table: str) -> None:
    backend = stored(envelope([(1, START + 1, 1.0)]))
    roll(backend, 5)
    lose(backend, table)
    with pytest.raises(IntegrityError):
        look(reader(backend))


def test_a_missing_block_of_the_replay_list_is_an_integrity_error() -> None:
    backend = stored(envelope([(1, START + 1, 1.0)]))
    roll(backend, 5, replay=True)
    lose(backend, "log")
    with pytest.raises(IntegrityError):
        look(reader(backend))


def test_a_missing_pending_block_is_an_integrity_error_in_every_query_and_for_its_hour_only() -> None:
    early, late = envelope([(1, START + 1, 1.0)]), envelope([(1, START + 30 * HOUR_MS, 1.0)], sequence=1)
    backend, clock = stored(early, late), FakeClock(NOW)
    storage = reader(backend, clock=clock)
    backend.delete("log", [(k, None) for k in keys_of(backend, "log") if keys.LogKey.parse(k).hour == HOUR])
    for _ in range(3):
        with pytest.raises(IntegrityError):
            look(storage)
        assert look(storage, START + 20 * HOUR_MS) == plain([late])
        clock.advance(2000)


def test_a_pending_block_that_a_purge_took_is_covered_by_its_generation() -> None:
    sent = envelope([(1, START + 1, 1.0)])
    backend = stored(sent)
    roll(backend, 5, settle=False)
    lose(backend, "log")
    storage = reader(backend)
    assert look(storage) == look(storage) == plain([sent])


def test_a_query_that_meets_a_purged_generation_starts_again() -> None:
    sent = envelope([(1, START + 1, 1.0), (4, START + 2, 2.0)])
    backend = Faulty(stored(sent))
    roll(backend.inner, 5)
    storage = reader(backend)
    moved: list[str] = []

    def run_and_purge(call: str) -> None:
        if call == "get chunks" and not moved:
            moved.append(call)
            old = [(t, keys_of(backend.inner, t)) for t in ("chunks", "timelines", "inputs")]
            roll(backend.inner, 6)
            for table, names in old:
                backend.inner.delete(table, [(key, None) for key in names])

    backend.hook = run_and_purge
    assert look(storage) == plain([sent])
    assert moved
    assert backend.calls.count("get chunks") == 2


def test_a_query_whose_manifests_keep_changing_gives_up() -> None:
    backend = Faulty(stored(envelope([(1, START + 1, 1.0)])))
    roll(backend.inner, 1)
    rounds = iter(range(2, 100))

    def always_moving(call: str) -> None:
        if call == "get chunks":
            old = keys_of(backend.inner, "chunks")
            roll(backend.inner, next(rounds))
            backend.inner.delete("chunks", [(key, None) for key in old])

    backend.hook = always_moving
    with pytest.raises(IntegrityError, match=f"{limits.RESTARTS_MAX} times"):
        look(reader(backend))


def test_pending_is_read_before_the_manifest() -> None:
    backend = Faulty(stored(envelope([(1, START + 1, 1.0)])))
    look(reader(backend))
    assert (
        backend.calls.index("scan pending") < backend.calls.index("get pending") < backend.calls.index("get manifest")
    )


@pytest.mark.parametrize("call", ["scan pending", "get pending", "get log", "get manifest", "get series"])
def test_a_run_at_any_moment_of_a_query_loses_nothing(call: str) -> None:
    sent = [envelope([(s, START + 1, 1.0)], sequence=s) for s in range(3)]
    backend = Faulty(stored(*sent))
    ran: list[str] = []

    def run(now: str) -> None:
        if now == call and not ran:
            ran.append(now)
            roll(backend.inner, 5)
            lose(backend.inner, "log")

    backend.hook = run
    assert look(reader(backend)) == plain(sent)
    assert ran


def test_a_snapshot_is_never_older_than_the_tail_it_is_used_with(tmp_path: Path) -> None:
    sent = [envelope([(1, START + 1, 1.0)]), envelope([(2, START + 1, 1.0)], sequence=1)]
    backend = Faulty(stored(*sent, backend=open_backend(f"lmdb://{tmp_path}/store")))
    clock = FakeClock(NOW)
    storage = reader(backend, clock=clock)
    look(storage)
    clock.advance(2000)
    others: list[threading.Thread] = []

    def another_query_after_a_run(call: str) -> None:
        if call == "snapshot taken" and not others:
            others.append(threading.Thread(target=look, args=(storage,)))
            roll(backend.inner, 5)
            others[0].start()
            others[0].join(timeout=1)

    backend.hook = another_query_after_a_run
    assert look(storage) == plain(sent)
    others[0].join()
    backend.close()


def test_the_state_of_a_store_without_a_write_since_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables: list[str] = []
    for name in ("get", "scan"):
        call = getattr(lmdb._Snapshot, name)

        def noted(self: object, table: str, *more: Any, _call: Any = call, **how: Any) -> Any:
            tables.append(table)
            return _call(self, table, *more, **how)

        monkeypatch.setattr(lmdb._Snapshot, name, noted)
    sent = [envelope([(1, START + 1, 1.0)])]
    backend = stored(*sent, backend=open_backend(f"lmdb://{tmp_path}/store"))
    roll(backend, 5)
    storage = reader(backend)
    state_tables = {"manifest", "config", "retractions"}
    for expected in (state_tables, set()):
        tables.clear()
        assert look(storage) == plain(sent)
        assert state_tables & set(tables) == expected
    retractions.add(backend, APP, Retraction(0, NOW, 0, 0, 1 << 50, 0, 1 << 50, "", (), "wrong", "me"))
    assert look(storage) == {}
    backend.close()


def test_a_query_uses_its_own_manifests_while_another_replaces_the_remembered_ones(tmp_path: Path) -> None:
    sent = [envelope([(1, START + 1, 1.0)])]
    backend = stored(*sent, backend=open_backend(f"lmdb://{tmp_path}/store"))
    roll(backend, 5)
    storage = reader(backend)
    assert look(storage) == plain(sent)
    known = storage._state._manifests_read

    class Overtaken(LruCache[Any, Any]):
        """After each read of them the remembered manifests are those of another query."""

        def get(self, key: Any) -> Any:
            last = known.get(key)
            known.clear()
            return last

    storage._state._manifests_read = Overtaken(1)
    for _ in range(2):
        assert look(storage) == plain(sent)
    backend.close()


# --- names and limits -------------------------------------------------------------------------------------------------


def test_series_that_only_a_run_has_seen_are_found() -> None:
    backend, clock = MemoryBackend(), FakeClock(NOW)
    old = reader(backend, clock=clock)
    sent = [envelope([(1, START + 1, 1.0)])]
    stored(*sent, backend=backend)
    assert look(old) in ({}, plain(sent))
    sent.append(envelope([(9, START + 2, 1.0)], sequence=1))
    stored(sent[1], backend=backend)
    roll(backend, 5)
    clock.advance(2000)
    assert look(old) == plain(sent)


def test_names_are_those_of_the_dictionary() -> None:
    storage = reader(stored(envelope([(s, START + 1, 1.0) for s in range(4)])))
    assert storage.label_names([], 0, NOW) == ["__name__", "host"]
    assert storage.label_values("host", [[Matcher("__name__", "=", "m0")]], 0, NOW) == ["h0", "h3"]
    got = storage.series([[Matcher("host", "=~", "h[12]")], [Matcher("host", "=", "h2")]], 0, NOW)
    assert sorted(labels["__name__"] + labels["host"] for labels in got) == ["m1h1", "m2h2"]


NAMES: list[Callable[[AppStorage, list[list[Matcher]], Callable[[], None]], object]] = [
    lambda storage, sets, check: storage.series(sets, 0, NOW, check_deadline=check),
    lambda storage, sets, check: storage.label_names(sets, 0, NOW, check_deadline=check),
    lambda storage, sets, check: storage.label_values("host", sets, 0, NOW, check_deadline=check),
]


@pytest.mark.parametrize("names", NAMES, ids=["series", "label names", "label values"])
def test_names_end_at_their_deadline_while_a_regular_expression_is_matched(
    names: Callable[[AppStorage, list[list[Matcher]], Callable[[], None]], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """900 values of 2 kB and one expression took 20.7 s at a time limit of 5 s, and held the app's lock."""
    monkeypatch.setattr(matchers, "MATCHED_BYTES_AT_ONCE", 20)
    storage = reader(stored(envelope([(s, START + 1, 1.0) for s in range(50)])))
    storage.label_names([], 0, NOW)
    matched: list[int] = []
    match = matchers._match_regex

    def counting(texts: Any, matcher: Matcher) -> Any:
        matched.append(1)
        return match(texts, matcher)

    monkeypatch.setattr(matchers, "_match_regex", counting)

    def check_deadline() -> None:
        if len(matched) == 3:
            raise QueryTimeout("late")

    with pytest.raises(QueryTimeout):
        names(storage, [[Matcher("host", "=~", "h.*9")]], check_deadline)
    assert len(matched) == 3
    assert names(storage, [[Matcher("host", "=~", "h4[89]")]], lambda: None)  # the lock is free


@pytest.mark.parametrize(("limit", "what"), [("QUERY_SAMPLES_MAX", "samples"), ("QUERY_SERIES_MAX", "series")])
@pytest.mark.parametrize(("value", "fits"), [(4, True), (3, False)], ids=["the limit", "one over"])
def test_a_query_reads_at_most_its_limits(
    monkeypatch: pytest.MonkeyPatch, limit: str, what: str, value: int, fits: bool
) -> None:
    storage = reader(stored(envelope([(s, START + 1, 1.0) for s in range(4)])))
    monkeypatch.setattr(limits, limit, value)
    if fits:
        assert len(look(storage)) == 4
    else:
        with pytest.raises(QueryTooLarge, match=what):
            look(storage)


# --- hours ------------------------------------------------------------------------------------------------------------

Hours = dict[tuple[str, int], tuple[int, float]]


def hours(storage: object, first: int = HOUR - 1, last: int = HOUR + 2) -> Hours:
    got = storage.select_hours(EVERY, first, last)  # type: ignore[attr-defined]
    return {
        (labels["host"], int(hour)): (int(got.count[i, j]), float(got.sum[i, j]))
        for i, labels in enumerate(got.labels)
        for j, hour in enumerate(got.hours)
        if got.count[i, j]
    }


def counted(sent: list[Envelope]) -> Hours:
    table: Hours = {}
    for (name, ts), value in plain(sent).items():
        at = wire.parse_canonical(name)[1]["host"], (ts - 1) // HOUR_MS
        count, total = table.get(at, (0, 0.0))
        table[at] = count + 1, total + float(np.int64(value).view(np.float64))
    return table


@settings(deadline=None, max_examples=30)
@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 5), TS, st.integers(-9, 9).map(float)), min_size=1), min_size=1, max_size=3
    )
)
def test_hours_without_aggregates_are_counted_from_samples(messages: list[list[tuple[int, int, float]]]) -> None:
    sent = [envelope(m, sequence=i) for i, m in enumerate(messages)]
    backend = stored(*sent)
    want = {at: v for at, v in counted(sent).items() if HOUR - 1 <= at[1] <= HOUR + 2}
    assert hours(reader(backend)) == want
    roll(backend, 5)
    assert hours(reader(backend)) == want


def test_hours_of_two_metrics_with_one_series_id_are_distinguished(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "series_id", lambda raw: 5)
    monkeypatch.setattr("spm.query.series.index.series_id", lambda raw: 5)
    sent = [envelope([(s, START + 1 + t, float(s + t)) for s in (0, 1, 2) for t in range(3)])]
    backend = stored(*sent)
    for _ in range(2):
        assert hours(reader(backend)) == counted(sent)
        assert look(reader(backend)) == plain(sent)
        roll(backend, 5)
