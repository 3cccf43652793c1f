"""Claims about spm/bounded.py: maps stay within their bounds and drop what was used least recently."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spm.bounded import LruCache, TtlMap

ACTS = st.lists(st.tuples(st.sampled_from("pg"), st.integers(0, 9), st.integers(1, 30)), max_size=60)


@given(ACTS, st.integers(10, 80), st.integers(1, 8))
def test_the_cache_holds_the_most_recently_used_entries_within_its_bounds(
    acts: list[tuple[str, int, int]], weight_max: int, count_max: int
) -> None:
    cache: LruCache[int, int] = LruCache(weight_max, count_max=count_max, share_max=0.5)
    model: dict[int, int] = {}  # in the order of use
    for act, key, weight in acts:
        if act == "p":
            cache.put(key, weight, weight)
            if weight <= weight_max // 2:
                model.pop(key, None)
                model[key] = weight
                while sum(model.values()) > weight_max or len(model) > count_max:
                    del model[next(iter(model))]
        else:
            assert cache.get(key) == model.get(key)
            if key in model:
                model[key] = model.pop(key)
        assert (cache.weight, len(cache)) == (sum(model.values()), len(model))
    assert cache.get_many(range(10)) == [model.get(key) for key in range(10)]


def test_an_entry_heavier_than_its_share_pushes_nothing_out() -> None:
    cache: LruCache[str, int] = LruCache(100, share_max=0.25)
    cache.put("small", 1, 20)
    cache.put("giant", 2, 26)
    assert (cache.get("small"), cache.get("giant")) == (1, None)


def test_a_cleared_cache_weighs_nothing() -> None:
    cache: LruCache[str, int] = LruCache(100)
    cache.put("a", 1, 60)
    cache.clear()
    cache.put("b", 2, 60)
    assert (cache.weight, "a" in cache, cache.get("b")) == (60, False, 2)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=60), st.integers(1, 4))
def test_a_value_is_loaded_again_when_it_is_old_or_was_pushed_out(acts: list[tuple[int, int]], count_max: int) -> None:
    values: TtlMap[int, int] = TtlMap(count_max, 10)
    model: dict[int, tuple[int, int]] = {}  # key → (load, when), in the order of use
    now = loads = 0
    for key, later in acts:
        now += later
        entry = model.pop(key, None)
        if entry is None or now >= entry[1] + 10:
            loads += 1
            entry = loads, now
        model[key] = entry
        while len(model) > count_max:
            del model[next(iter(model))]
        assert values.get_or_load(key, now, lambda load=loads: load) == entry[0]  # type: ignore[misc]
        assert len(values) == len(model)


def test_a_load_that_fails_leaves_the_last_value() -> None:
    values: TtlMap[str, int | None] = TtlMap(4, 10)
    assert values.get_or_load("a", 0, lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        values.get_or_load("a", 11, lambda: 1 // 0)
    assert (values.last("a"), values.last("b")) == (7, None)


def test_that_there_is_nothing_is_remembered_too() -> None:
    values: TtlMap[str, int | None] = TtlMap(4, 10)
    assert values.get_or_load("a", 0, lambda: None) is None
    assert values.get_or_load("a", 9, lambda: 5) is None
    values.clear()
    assert values.get_or_load("a", 9, lambda: 5) == 5
