"""Claims about spm/store/dictionary.py: series are registered once, durably, and never two under one key."""

import threading
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spm import limits, wire
from spm.errors import StoreUnavailable
from spm.store import keys
from spm.store.backends import open_backend
from spm.store.backends.base import Backend, taken
from spm.store.backends.memory import MemoryBackend
from spm.store.dictionary import COLUMN, SeriesRegistry, matching
from spm.store.matchers import Matcher
from spm.wire import SeriesTable, canonical
from tests.support.faults import Faulty, flip, keys_of
from tests.support.rows import form


def table(*series: int) -> SeriesTable:
    return SeriesTable.from_canonical([form(s) for s in series])


def test_each_series_is_a_row_with_its_canonical_form() -> None:
    backend = MemoryBackend()
    assert SeriesRegistry(backend).register(7, table(1, 2)).tolist() == []
    series_table = table(1, 2)
    names = [keys.series(7, int(m), int(s)) for m, s in zip(series_table.metrics, series_table.ids, strict=True)]
    assert backend.get("series", names) == [{COLUMN: form(1)}, {COLUMN: form(2)}]


def test_a_known_series_costs_no_call() -> None:
    backend = Faulty(MemoryBackend())
    registry = SeriesRegistry(backend)
    registry.register(7, table(1, 2))
    backend.calls.clear()
    registry.register(7, table(2, 1))
    assert backend.calls == []
    registry.register(8, table(1))
    assert backend.calls == ["get series", "check series"]


def test_a_registered_series_is_read_but_not_written_by_a_new_process() -> None:
    backend = Faulty(MemoryBackend())
    SeriesRegistry(backend).register(7, table(1))
    backend.calls.clear()
    SeriesRegistry(backend).register(7, table(1))
    assert backend.calls == ["get series"]


def test_a_failed_registration_is_not_remembered() -> None:
    backend = Faulty(MemoryBackend(), fails_at=1)
    registry = SeriesRegistry(backend)
    with pytest.raises(StoreUnavailable):
        registry.register(7, table(1))
    backend.fails_at = None
    registry.register(7, table(1))
    assert len(keys_of(backend.inner, "series")) == 1


def test_one_more_series_than_a_process_remembers_makes_it_ask_again() -> None:
    backend = Faulty(MemoryBackend())
    registry = SeriesRegistry(backend, known_max=3)
    registry.register(7, table(1, 2, 3))
    registry.register(7, table(4))
    backend.calls.clear()
    assert registry.register(7, table(1, 4)).tolist() == []
    assert backend.calls == ["get series"]
    assert SeriesRegistry(backend)._known_max == limits.SERIES_KNOWN_MAX


@pytest.mark.parametrize("url", ["memory://new", "lmdb://{}/store"])
def test_of_two_racing_series_with_one_hash_exactly_one_goes_in(
    url: str, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "_hash64", lambda raw: len(raw))
    forms = [canonical("cpu", {"host": f"{i:03}"}) for i in range(8)]
    backend = open_backend(url.format(tmp_path))
    refused: dict[int, list[int]] = {}
    start = threading.Barrier(len(forms))

    def race(i: int) -> None:
        start.wait()
        refused[i] = SeriesRegistry(backend).register(7, SeriesTable.from_canonical([forms[i]])).tolist()

    threads = [threading.Thread(target=race, args=(i,)) for i in range(len(forms))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    [winner] = [i for i, collided in refused.items() if not collided]
    assert [row[COLUMN] for _, row in backend.scan("series", b"", b"\xff" * 30)] == [forms[winner]]
    backend.close()


def test_threads_of_one_registry_agree() -> None:
    backend = MemoryBackend()
    registry = SeriesRegistry(backend)
    parts = [np.arange(i, i + 40) for i in range(0, 80, 10)]
    threads = [threading.Thread(target=registry.register, args=(7, table(*map(int, p)))) for p in parts]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(keys_of(backend, "series")) == 110
    assert registry.register(7, table(*range(110))).tolist() == []


def registered(registry: SeriesRegistry, apps: list[int], series_table: SeriesTable) -> list[int]:
    """Register series as a writer does with a batch; return those that collide."""
    collided, new = registry.look_up(np.array(apps, np.uint32), series_table)
    if new:
        assert not taken(new.rows, registry._backend.put_new("series", COLUMN, new.rows, []))
        registry.remember(new)
    places: list[int] = collided.tolist()
    return places


def test_series_of_many_apps_are_registered_together() -> None:
    backend = Faulty(MemoryBackend())
    registry, series_table = SeriesRegistry(backend), table(1, 2, 1)
    assert registered(registry, [7, 7, 8], series_table) == []
    assert backend.calls == ["get series", "check series"]
    names = [
        keys.series(app, int(series_table.metrics[i]), int(series_table.ids[i])) for app, i in ((7, 0), (7, 1), (8, 2))
    ]
    assert sorted(keys_of(backend.inner, "series")) == sorted(names)
    backend.calls.clear()
    assert registry.register(8, table(1)).tolist() == []
    assert backend.calls == []
    registry.register(8, table(2))
    assert backend.calls == ["get series", "check series"]


def test_collision_of_one_app_is_none_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "_hash64", lambda raw: len(raw))
    registry = SeriesRegistry(MemoryBackend())
    registry.register(7, SeriesTable.from_canonical([canonical("cpu", {"host": "a"})]))
    both = SeriesTable.from_canonical([canonical("cpu", {"host": "b"})] * 2)
    assert registered(registry, [7, 8], both) == [0]
    assert registered(registry, [7, 8], both) == [0]


def test_of_two_new_series_with_one_hash_the_first_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "_hash64", lambda raw: len(raw))
    forms = [canonical("cpu", {"host": name}) for name in "aba"]
    backend = MemoryBackend()
    registry = SeriesRegistry(backend)
    assert registered(registry, [7] * 3, SeriesTable.from_canonical(forms)) == [1]
    assert [row[COLUMN] for _, row in backend.scan("series", b"", b"\xff" * 30)] == [forms[0]]
    assert registered(registry, [7] * 3, SeriesTable.from_canonical(forms)) == [1]


@given(
    st.lists(
        st.lists(st.tuples(st.integers(7, 8), st.sampled_from("abcdefg"), st.integers(1, 2)), max_size=6), max_size=6
    )
)
def test_series_are_registered_as_a_plain_map_would(batches: list[list[tuple[int, str, int]]]) -> None:
    """Of a series (app, host, length): forms of equal length have one id, so that many of them collide."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire, "_hash64", lambda raw: len(raw))
        backend, plain = MemoryBackend(), dict[tuple[int, int], bytes]()
        registry = SeriesRegistry(backend)
        for number, batch in enumerate(batches):
            forms = [canonical("cpu", {"host": host * size}) for _, host, size in batch]
            collided = [
                place
                for place, ((app, _, _), one) in enumerate(zip(batch, forms, strict=True))
                if plain.setdefault((app, len(one)), one) != one
            ]
            apps = [app for app, _, _ in batch]
            assert registered(registry, apps, SeriesTable.from_canonical(forms)) == collided
            if number % 2:
                registry = SeriesRegistry(backend)  # one that knows nothing
        stored = [row[COLUMN] for _, row in backend.scan("series", b"", b"\xff" * 30)]
        assert sorted(stored) == sorted(plain.values())


def test_series_are_known_only_once_they_are_remembered() -> None:
    registry = SeriesRegistry(MemoryBackend())
    for _ in range(2):
        assert len(registry.look_up(np.array([7, 7], np.uint32), table(1, 2))[1]) == 2


def test_series_that_stands_twice_in_a_table_is_registered_once() -> None:
    backend = MemoryBackend()
    assert SeriesRegistry(backend).register(7, table(1, 2, 1)).tolist() == []
    assert len(keys_of(backend, "series")) == 2


def matched(backend: Backend, *matchers: Matcher, app: int = 7) -> list[int]:
    """Numbers of the series that ``matching`` finds, in its order turned into numbers' order."""
    series, metrics = matching(backend, app, matchers)
    number = {(int(m), int(s)): n for n in range(20) for m, s in zip(table(n).metrics, table(n).ids, strict=True)}
    assert sorted(zip(metrics.tolist(), series.tolist(), strict=True)) == list(
        zip(metrics.tolist(), series.tolist(), strict=True)
    )
    return sorted(number[pair] for pair in zip(metrics.tolist(), series.tolist(), strict=True))


@pytest.mark.parametrize(
    ("matchers", "numbers"),
    [
        pytest.param([], range(12), id="none: every series"),
        pytest.param([Matcher("__name__", "=", "m1")], [1, 4, 7, 10], id="one metric"),
        pytest.param([Matcher("__name__", "=~", "m1|m2")], [1, 2, 4, 5, 7, 8, 10, 11], id="metrics by expression"),
        pytest.param([Matcher("__name__", "=", "m1"), Matcher("host", "!=", "h4")], [1, 7, 10], id="metric and label"),
        pytest.param([Matcher("host", "=~", "h1.")], [10, 11], id="a label by expression"),
        pytest.param([Matcher("rack", "=", "")], range(12), id="a label nobody has is empty"),
        pytest.param([Matcher("rack", "!=", "")], [], id="a label nobody has is never full"),
        pytest.param([Matcher("__name__", "=", "other")], [], id="an unknown metric"),
    ],
)
def test_matching_finds_the_series_of_an_app(matchers: list[Matcher], numbers: Iterable[int]) -> None:
    backend = MemoryBackend()
    SeriesRegistry(backend).register(7, table(*range(12)))
    SeriesRegistry(backend).register(8, table(*range(12, 20)))
    assert matched(backend, *matchers) == list(numbers)


def test_matching_one_metric_reads_no_other() -> None:
    backend = Faulty(MemoryBackend())
    SeriesRegistry(backend).register(7, table(*range(12)))
    backend.calls.clear()
    matching(backend, 7, [Matcher("__name__", "=", "m1")])
    assert backend.calls == ["scan series"]


def test_matching_passes_over_a_damaged_row() -> None:
    backend = MemoryBackend()
    SeriesRegistry(backend).register(7, table(1, 4))
    key = keys.series(7, int(table(1).metrics[0]), int(table(1).ids[0]))
    flip(backend, "series", key, COLUMN)
    assert matched(backend) == [4]


def test_matching_goes_through_more_series_than_it_looks_at_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spm.store.dictionary._SERIES_AT_ONCE", 3)
    backend = MemoryBackend()
    SeriesRegistry(backend).register(7, table(*range(12)))
    assert matched(backend) == list(range(12))
