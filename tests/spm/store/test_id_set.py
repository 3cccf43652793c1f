"""A set of ids equals a plain set, whatever is added in which order, and stays within its bytes."""

import threading

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from spm.arrays import U32, U64
from spm.store.id_set import IdSet
from tests.ingest.protocols.cpu import timed

BYTES_PER_ID_MAX = 16
Pairs = list[tuple[int, int]]

edges = st.sampled_from([1, 2, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])
pairs = st.tuples(st.one_of(st.integers(0, 40), edges), st.integers(0, 3)).filter(lambda pair: pair != (0, 0))
steps = st.lists(st.tuples(st.sampled_from(["add", "add", "add", "clear"]), st.lists(pairs, max_size=30)), max_size=12)


def columns(some: Pairs) -> tuple[U64, U32]:
    return np.array([number for number, _ in some], np.uint64), np.array([tag for _, tag in some], np.uint32)


@settings(max_examples=300, deadline=None)
@given(steps, st.lists(pairs, max_size=60))
def test_set_equals_a_plain_set(some: list[tuple[str, Pairs]], wanted: Pairs) -> None:
    ids, plain = IdSet(), set[tuple[int, int]]()
    for step, added in some:
        if step == "clear":
            ids.clear()
            plain.clear()
        else:
            ids.add(*columns(added))
            plain.update(added)
        assert ids.contains(*columns(wanted)).tolist() == [pair in plain for pair in wanted]
        assert len(ids) == len(plain)


def test_set_grows_by_little_and_keeps_every_id() -> None:
    random, ids = np.random.default_rng(5), IdSet()
    numbers = random.integers(1, 1 << 63, 200_000).astype(np.uint64)
    tags = random.integers(0, 1 << 32, len(numbers)).astype(np.uint32)
    sizes = []
    for start in range(0, len(numbers), 1_000):
        part = slice(start, start + 1_000)
        ids.add(numbers[part], tags[part])
        sizes.append(ids.nbytes / len(ids))
    assert max(sizes[2:]) <= BYTES_PER_ID_MAX
    assert ids.contains(numbers, tags).all()
    assert not ids.contains(numbers, tags ^ np.uint32(1)).any()
    assert not ids.contains(numbers + np.uint64(1), tags).any()


def test_equal_ids_with_many_tags_are_as_quick_as_others() -> None:
    ids, tags = IdSet(), np.arange(100_000, dtype=np.uint32)
    same = np.full(len(tags), 7, np.uint64)
    ids.add(same[:1], tags[:1])
    _, duration_s = timed(lambda: ids.add(same, tags))  # in one chain of slots, this would take minutes
    assert duration_s < 1.0
    assert ids.contains(same, tags).all()


def test_readers_see_what_was_added_before_they_began_while_others_add() -> None:
    ids, numbers = IdSet(), np.arange(1, 60_001, dtype=np.uint64)
    tags = np.zeros(len(numbers), np.uint32)
    absent, ends, wrong = np.arange(1_000_000, 1_000_500, dtype=np.uint64), [0], list[str]()

    def read() -> None:
        while ends[0] < len(numbers):
            end = ends[0]
            if not ids.contains(numbers[:end], tags[:end]).all():
                wrong.append(f"one of {end} is missing")
            if ids.contains(absent, tags[: len(absent)]).any():
                wrong.append("one that nobody added is there")

    def add(first: int) -> None:
        ids.add(numbers[first::2], tags[first::2])

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for end in range(500, len(numbers) + 1, 500):
        ids.add(numbers[end - 500 : end], tags[end - 500 : end])
        ends[0] = end
    for reader in readers:
        reader.join()
    both = [threading.Thread(target=add, args=(first,)) for first in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert (wrong, len(ids)) == ([], len(numbers))
