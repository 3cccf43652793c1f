"""Claims about ingest/part_encoding.py: parts that touch very many HourShards are encoded fast, to equal bytes."""

import numpy as np
import pytest

from ingest import part_encoding
from ingest.part_encoding import AppPart, SampleColumns, encode_part
from spm.envelope_batch import Envelopes
from spm.limits import HOUR_MS
from spm.store.encoding import codec
from spm.store.keys import PlacementTable
from spm.wire import Envelope, SeriesTable, Stamp, canonical

START = 1_600_000_000_000


def message(sequence: int, *, hours: int, metrics: int, samples: int, seed: int = 1) -> Envelope:
    """A message with this many samples of random series at random times of these hours."""
    rng = np.random.default_rng(seed * 1_000 + sequence)
    names = [canonical(f"m{i % metrics}", {"host": f"h{i}"}) for i in range(2 * metrics)]
    index = rng.integers(0, len(names), samples, dtype=np.int32)
    ts = START + rng.integers(1, hours * HOUR_MS, samples, dtype=np.int64)
    values = np.where(rng.random(samples) < 0.5, np.round(rng.random(samples), 2), rng.random(samples))
    stamp = Stamp(1_700_000_000_000 + sequence, 7, sequence)
    return Envelope(
        1,
        f"host-{sequence % 2}",
        stamp,
        bytes([sequence] * 16),
        SeriesTable.from_canonical(names),
        index,
        ts,
        values,
        0,
    )


def part(*envelopes: Envelope) -> AppPart:
    return AppPart(1, PlacementTable.single(16, 16).newest, SampleColumns.of(Envelopes.of(envelopes)))


@pytest.mark.parametrize(
    "envelopes",
    [
        [message(1, hours=300, metrics=9, samples=2_000)],
        [message(1, hours=40, metrics=40, samples=4_000)],
        [message(1, hours=2, metrics=60, samples=20_000)],
        [message(i, hours=200, metrics=5, samples=700) for i in range(1, 5)],
        [message(1, hours=500, metrics=3, samples=500), message(2, hours=1, metrics=3, samples=500)],
    ],
    ids=["few samples", "some samples", "many samples", "several messages", "a wide one beside a live one"],
)
def test_a_wide_part_has_the_bytes_that_each_of_its_blocks_has_alone(
    envelopes: list[Envelope], monkeypatch: pytest.MonkeyPatch
) -> None:
    of = part(*envelopes)
    monkeypatch.setattr(part_encoding, "WIDE", 1)
    together = encode_part(of, 5)
    monkeypatch.setattr(part_encoding, "WIDE", 1 << 60)
    assert together == encode_part(of, 5)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all columns that are encoded from now on."""
    calls, encode = list[int](), codec.encode

    def noting(column: codec.Column, **how: bool) -> codec.Encoded:
        calls.append(len(column))
        return encode(column, **how)

    monkeypatch.setattr(codec, "encode", noting)
    return calls


def test_a_block_and_its_commit_record_share_their_encoded_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    of = part(*[message(sequence, hours=1, metrics=1, samples=50) for sequence in range(1, 6)])
    calls = counted(monkeypatch)
    rows = len(encode_part(of, 5)[0])
    assert calls.count(5) == 5 * rows  # stamps and sources once, and the samples of each message
    assert len(calls) == 14 * rows + 2  # and the list of rows


def test_a_message_over_very_many_hours_has_its_equal_columns_packed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """2,500 hours in all shards took nine seconds on a busy machine, each block and commit record for itself."""
    of = part(message(1, hours=800, metrics=64, samples=51_200))
    calls, by_width = counted(monkeypatch), list[int]()
    for wide in (part_encoding.WIDE, 1 << 60):
        monkeypatch.setattr(part_encoding, "WIDE", wide)
        calls.clear()
        assert len(encode_part(of, 5)[0]) > 10_000
        by_width.append(len(calls))
    assert 3 * by_width[0] < by_width[1]
