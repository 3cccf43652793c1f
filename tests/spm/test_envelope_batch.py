"""Claims about spm/envelope_batch.py: many bodies at once are what each is alone, and damage is never passed over."""

import zlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spm.envelope_batch import Envelopes, count_samples
from spm.errors import CorruptBlock
from spm.limits import TIME_MAX_MS
from spm.wire import FIXED, HEAD, MAGIC, Envelope, SeriesTable
from tests.support.rows import envelope, form, number

SAMPLES = st.lists(
    st.tuples(st.integers(0, 5), st.integers(1, 2**53), st.integers(0, 2**64 - 1).map(number)), max_size=8
)
MESSAGES = st.lists(
    st.builds(
        envelope,
        SAMPLES,
        ms=st.integers(0, TIME_MAX_MS),
        process=st.integers(0, 2**32 - 1),
        sequence=st.integers(0, 2**16 - 1),
        source=st.sampled_from(["", "a", "b", "ü"]),
        rejected=st.integers(0, 2**32 - 1),
        app=st.integers(0, 2**32 - 1),
    ),
    max_size=6,
)


def bodies(envelopes: Envelopes) -> list[bytes]:
    return [envelopes[i].to_bytes() for i in range(len(envelopes))]


def summed(body: bytes) -> bytes:
    """An envelope with this body, whatever is in it, and the right checksum."""
    return HEAD.pack(MAGIC, 1, zlib.crc32(body)) + body


@given(MESSAGES)
def test_many_bodies_read_at_once_are_what_each_is_alone(messages: list[Envelope]) -> None:
    raw = [message.to_bytes() for message in messages]
    assert bodies(Envelopes.read(raw)) == raw
    assert bodies(Envelopes.of(messages)) == raw
    assert [count_samples(each) for each in raw] == [len(message) for message in messages]


@given(MESSAGES)
def test_columns_of_a_read_batch_can_be_written_as_kernels_want_it(messages: list[Envelope]) -> None:
    got = Envelopes.read([message.to_bytes() for message in messages])
    every = (got.ts, got.values, got.series_index, got.series.ids, got.series.text, got.series.starts, got.message_ids)
    assert all(column.flags.writeable and column.flags.c_contiguous for column in every)


@settings(max_examples=200)
@given(MESSAGES.filter(bool), st.data())
def test_a_batch_is_refused_exactly_when_one_of_its_bodies_is(messages: list[Envelope], data: st.DataObject) -> None:
    raw = [message.to_bytes() for message in messages]
    which = data.draw(st.integers(0, len(raw) - 1))
    body = bytearray(raw[which][HEAD.size :])
    body[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    raw[which] = summed(bytes(body))
    try:
        Envelope.from_bytes(raw[which])
    except CorruptBlock:
        with pytest.raises(CorruptBlock):
            Envelopes.read(raw)
    else:
        assert bodies(Envelopes.read(raw)) == [Envelope.from_bytes(each).to_bytes() for each in raw]


@pytest.mark.parametrize("at", [0, 3, 4, 5, 20, 59, 60, 100, -1], ids=str)
def test_a_flipped_bit_anywhere_is_found(at: int) -> None:
    raw = [envelope([(1, 5, 1.5)], sequence=n).to_bytes() for n in range(3)]
    bad = bytearray(raw[1])
    bad[at] ^= 4
    with pytest.raises(CorruptBlock):
        Envelopes.read([raw[0], bytes(bad), raw[2]])


@pytest.mark.parametrize("wrong", [b"", b"SPMe", b"x" * 200], ids=["nothing", "a magic word alone", "garbage"])
def test_what_is_no_envelope_is_refused_by_its_head(wrong: bytes) -> None:
    with pytest.raises(CorruptBlock):
        count_samples(wrong)
    with pytest.raises(CorruptBlock):
        Envelopes.read([wrong])


def test_a_stamp_that_fits_no_key_is_refused() -> None:
    good = envelope([(1, 5, 1.5)]).to_bytes()[HEAD.size :]
    bad = summed(good[:4] + (TIME_MAX_MS + 1).to_bytes(8, "big") + good[12:])
    for read in (Envelope.from_bytes, lambda raw: Envelopes.read([raw])):
        with pytest.raises(CorruptBlock):
            read(bad)


def test_messages_of_the_same_series_share_one_table() -> None:
    raw = [envelope([(s, 5, 1.5) for s in range(4)], sequence=n).to_bytes() for n in range(5)]
    assert len(Envelopes.read(raw).series) == 4


def test_equal_bytes_cut_otherwise_are_no_shared_table() -> None:
    """The bytes of a table do not say how many series they hold: its text may look like another series."""
    one = envelope([(1, 5, 1.5)])
    text = bytes(20) + form(1)
    forms = SeriesTable(one.series.ids, one.series.metrics, np.frombuffer(text, np.uint8), *_whole(len(text)))
    a = replace(one, series=forms).to_bytes()
    cut = a[HEAD.size + FIXED.size + len(one.source) :][: 20 + len(text)]
    head = FIXED.pack(7, 1, 1, 0, 0, bytes(16), 2, 0, len(form(1)), 0)
    b = summed(head + cut)
    try:
        alone = Envelope.from_bytes(b).to_bytes()
    except CorruptBlock:
        with pytest.raises(CorruptBlock):
            Envelopes.read([a, b])
    else:
        assert bodies(Envelopes.read([a, b])) == [a, alone]


def _whole(length: int) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros(1, np.int64), np.array([length], np.int64)


@given(MESSAGES, st.randoms(use_true_random=False))
def test_some_samples_of_many_messages_are_those_samples_and_their_series_alone(
    messages: list[Envelope], by: object
) -> None:
    whole = Envelopes.read([message.to_bytes() for message in messages])
    rows = np.array([by.random() < 0.5 for _ in range(len(whole.ts))], np.bool_)  # type: ignore[attr-defined]
    some = whole.select_samples(rows)
    assert some.ts.tolist() == whole.ts[rows].tolist()
    forms = [some.series.canonical(int(i)) for i in some.series_index]
    assert forms == [whole.series.canonical(int(i)) for i in whole.series_index[rows]]
    assert set(some.series_index.tolist()) == set(range(len(some.series)))
    assert [len(some[i]) for i in range(len(some))] == np.bincount(whole.message[rows], minlength=len(whole)).tolist()


@given(MESSAGES, st.randoms(use_true_random=False))
def test_some_of_many_messages_are_those_messages(messages: list[Envelope], by: object) -> None:
    raw = [message.to_bytes() for message in messages]
    taken = [by.random() < 0.5 for _ in raw]  # type: ignore[attr-defined]
    some = Envelopes.read(raw).select_messages(np.array(taken, np.bool_))
    assert bodies(some) == [each for each, wanted in zip(raw, taken, strict=True) if wanted]
