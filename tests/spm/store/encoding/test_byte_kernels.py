"""Hashes and comparisons of texts read eight bytes at a time, and no byte beyond a text counts."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from spm.arrays import U8
from spm.store.encoding.byte_kernels import is_equal, text_hash, text_tags
from spm.wire import SeriesTable
from tests.support.rows import form

SEED, MULTIPLIER = np.uint64(12345), np.uint64(0x9E3779B97F4A7C15)


def as_bytes(text: bytes) -> U8:
    return np.frombuffer(text, np.uint8)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=20), st.binary(max_size=9), st.binary(max_size=9), st.binary(max_size=9))
def test_hash_of_a_text_does_not_depend_on_what_stands_around_it(
    text: bytes, before: bytes, after: bytes, other: bytes
) -> None:
    here, there = as_bytes(before + text + after), as_bytes(other + text)
    start, end = len(before), len(before) + len(text)
    hashes = {
        int(text_hash(SEED, MULTIPLIER, here, start, end)),
        int(text_hash(SEED, MULTIPLIER, there, len(other), len(other) + len(text))),
    }
    assert len(hashes) == 1
    assert is_equal(there, len(other), here, start, end)
    assert is_equal(here, start, there, len(other), len(other) + len(text))
    longer, another = as_bytes(text + b"a" * 9), as_bytes(text + b"b" * 9)
    assert is_equal(longer, 0, another, 0, len(text))
    assert is_equal(here, start, another, 0, len(text))


@settings(max_examples=300, deadline=None)
@given(st.binary(min_size=1, max_size=20), st.integers(0, 19), st.integers(1, 255), st.binary(max_size=9))
def test_texts_that_differ_in_one_byte_are_not_equal(text: bytes, place: int, flip: int, after: bytes) -> None:
    place %= len(text)
    other = text[:place] + bytes([text[place] ^ flip]) + text[place + 1 :]
    assert not is_equal(as_bytes(text + after), 0, as_bytes(other + after), 0, len(text))
    assert text_hash(SEED, MULTIPLIER, as_bytes(text), 0, len(text)) != text_hash(
        SEED, MULTIPLIER, as_bytes(other), 0, len(text)
    )


def test_short_names_that_differ_in_their_last_byte_spread_over_a_small_table() -> None:
    slots = {int(text_hash(SEED, MULTIPLIER, as_bytes(b"usage_%d" % n), 0, 7)) & 1023 for n in range(10)}
    assert len(slots) >= 8


def test_texts_that_differ_anywhere_have_another_tag() -> None:
    base = form(1) * 3
    flipped = [base[:i] + bytes([base[i] ^ 1]) + base[i + 1 :] for i in range(len(base))]
    table = SeriesTable.from_canonical([base, base + b"\0", b"\0" + base, base[:-1], *flipped])
    tags = np.zeros(len(table), np.uint32)
    text_tags(SEED, MULTIPLIER, table.text, table.starts, table.ends, tags)
    assert len(set(tags.tolist())) == len(table)


def test_equal_texts_keep_different_tags_different() -> None:
    table = SeriesTable.from_canonical([form(1)] * 100)
    tags = np.arange(100, dtype=np.uint32)
    text_tags(SEED, MULTIPLIER, table.text, table.starts, table.ends, tags)
    assert len(set(tags.tolist())) == 100
