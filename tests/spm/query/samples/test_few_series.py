"""The samples of a few series are the winners of all pieces, as merging the pieces would find them."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from spm.query.samples.gather import gather, layout_of
from spm.query.samples.pointers import address_of
from spm.query.series.index import SeriesSelection
from spm.store.encoding.blocks import Messages
from spm.store.versions.merge import Piece, merge, pick, requested
from spm.wire import STALE_BITS

Samples = dict[tuple[int, int], list[tuple[int, int]]]  # (metric, series) -> times and bits
KEYS = [(metric, series) for metric in (3, 5) for series in (10, 20, 1 << 63)]
START, END = 4, 16


def piece(versions: list[tuple[int, int, int, int]]) -> Piece:
    """A merged piece of (number of the key, time, stamp, bits)."""
    stamps = sorted({stamp for _, _, stamp, _ in versions})
    numbers = np.array(stamps, np.int64)
    messages = Messages(numbers, numbers * 0, numbers * 0, np.zeros(len(stamps), np.int32), ("a",))
    parts = []
    for number, time, stamp, bits in versions:
        metric, series = KEYS[number]
        ids, metrics = np.array([series], np.uint64), np.array([metric], np.uint64)
        counts, message = np.array([1], np.int32), np.array([stamps.index(stamp)], np.int32)
        value = np.array([bits], np.int64).view(np.float64)
        parts.append(Piece(messages, ids, metrics, counts, message, np.array([time], np.int64), value))
    return merge(parts)


def selection(numbers: list[int]) -> SeriesSelection:
    ids, metrics = (np.array([KEYS[number][part] for number in numbers], np.uint64) for part in (1, 0))
    return SeriesSelection.of(np.arange(len(numbers)), ids, metrics)


def gathered(pieces: list[Piece], wanted: SeriesSelection) -> Samples | None:
    winners = gather([layout_of(each) for each in pieces], wanted.by_metric(), START, END)
    if winners is None:
        return None
    samples: Samples = {}
    for number, column, first, timeline in winners.entries.tolist():
        line = winners.timelines
        begin, length = int(line.first[timeline]), int(line.lengths[timeline])
        assert column == line.skipped[timeline] == 0
        assert line.addresses[timeline] == address_of(line.ts) + 8 * begin
        bits = winners.values[first : first + length].view(np.int64).tolist()
        key = int(wanted.metrics[number]), int(wanted.series[number])
        samples[key] = list(zip(line.ts[begin : begin + length].tolist(), bits, strict=True))
    return samples


def merged(pieces: list[Piece], wanted: SeriesSelection) -> Samples:
    by_metric = wanted.by_metric()
    winners = pick(merge(requested(pieces, {metric: by_metric[metric][0] for metric in by_metric.spans})))
    samples: Samples = {}
    at = 0
    for series, metric, count in zip(winners.series, winners.metrics, winners.counts, strict=True):
        own = slice(at, at := at + int(count))
        times, bits = winners.ts[own].tolist(), winners.values[own].view(np.int64).tolist()
        inside = [(time, value) for time, value in zip(times, bits, strict=True) if START < time <= END]
        if inside:
            samples[int(metric), int(series)] = inside
    return samples


def random_cases() -> Iterator[tuple[int, bool]]:
    for seed in range(300):
        yield seed, seed % 3 > 0


def test_they_are_the_winners_of_all_pieces() -> None:
    answered = refused = 0
    for seed, apart in random_cases():
        rng = np.random.default_rng(seed)
        pieces = []
        for number in range(int(rng.integers(1, 5))):
            times = [int(t) for t in rng.integers(0, 20, 12)]
            if apart:
                times = [time // 4 * 4 + number for time in times]  # no time is in two pieces
            keys, stamps = rng.integers(0, len(KEYS), 12).tolist(), rng.integers(0, 6, 12).tolist()
            bits = rng.choice([1, 2, STALE_BITS], 12).tolist()
            pieces.append(piece(list(zip(keys, times, stamps, bits, strict=True))))
        wanted = selection(sorted(rng.choice(len(KEYS), 3, replace=False).tolist()))
        answer = gathered(pieces, wanted)
        if answer is None:
            assert not apart, "pieces without a common time cannot differ"
            refused += 1
        else:
            assert answer == merged(pieces, wanted), seed
            answered += 1
    assert answered > 200
    assert refused


def test_one_that_was_sent_again_is_the_same_sample() -> None:
    pieces = [piece([(0, 5, 1, 7), (0, 6, 1, 8)]), piece([(0, 6, 1, 8), (0, 7, 2, 9)])]
    assert gathered(pieces, selection([0])) == {KEYS[0]: [(5, 7), (6, 8), (7, 9)]}


def test_two_values_of_one_time_are_left_to_their_stamps() -> None:
    assert gathered([piece([(0, 6, 1, 8)]), piece([(0, 6, 2, 9)])], selection([0])) is None
    assert gathered([piece([(0, 6, 1, 8)]), piece([(1, 6, 2, 9)])], selection([0])) == {KEYS[0]: [(6, 8)]}


@pytest.mark.parametrize(("key", "time", "has"), [(0, 6, True), (0, END + 1, True), (1, 6, False)])
def test_it_says_whether_any_piece_has_the_series(key: int, time: int, has: bool) -> None:
    one = piece([(key, time, 1, 8)])
    winners = gather([layout_of(one)], selection([0]).by_metric(), START, END)
    assert winners is not None
    assert winners.has_series == has


def test_columns_that_no_kernel_can_address_are_left_alone() -> None:
    whole = piece([(0, 5, 1, 7), (0, 6, 1, 8)])
    columns: list[Any] = [np.array([5, 5, 6, 6])[::2], np.array([5, 6], np.int32)]
    for column in columns:
        strange = Piece(whole.messages, whole.series, whole.metrics, whole.counts, whole.message, column, whole.values)
        assert layout_of(strange) is None
        assert gather([layout_of(whole), layout_of(strange)], selection([0]).by_metric(), START, END) is None
