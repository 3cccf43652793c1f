"""Claims about spm/store/versions/merge.py against PROTOCOL 2 in plain Python: which versions stay and which wins."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spm import wire
from spm.store.versions.merge import EMPTY, Piece, merge, narrow, pick, requested
from tests.ingest.protocols.cpu import timed
from tests.support.rows import Version, bits, number, piece, versions_of
from tests.support.store_columns import compile_kernels

compile_kernels()

# an ingest id belongs to one source: (ms, process, sequence, source); few of each, so that they meet
STAMP = st.sampled_from(
    [(5, 1, 0, "b"), (5, 1, 1, "b"), (5, 2, 0, "a"), (6, 1, 0, "b"), (4, 9, 9, "a"), (6, 1, 0, "a")]
)
BITS = st.sampled_from([bits(v) for v in (1.0, -0.0, 0.0, float("nan"))] + [bits(number(0x7FF0000000000002))])
VERSIONS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4), BITS, STAMP), max_size=25)


def reference(arrived: list[Version]) -> list[Version]:
    """Distinct versions by (metric, series, ts, stamp, source), within a message in the order of last arrival."""
    last = {v: i for i, v in enumerate(arrived)}
    return sorted(last, key=lambda v: (v[0] % 3, v[0], v[1], v[3], last[v]))


def winners(versions: list[Version]) -> dict[tuple[int, int], int]:
    in_order = sorted(versions, key=lambda v: v[2] != wire.STALE_BITS)  # what comes last stays; the sort is stable
    return {(s, t): b for s, t, b, _ in in_order}


def picked(merged: Piece, visible: list[bool] | None = None) -> dict[tuple[int, int], int]:
    got = pick(merged, None if visible is None else np.array(visible, np.bool_)[merged.message])
    owner = np.repeat(got.series, got.counts).tolist()
    assert len(set(zip(owner, got.ts.tolist(), strict=True))) == len(owner)
    return {(s, int(t)): int(b) for s, t, b in zip(owner, got.ts, got.values.view(np.int64), strict=True)}


@given(VERSIONS)
def test_merge_keeps_every_distinct_version_in_the_total_order(arrived: list[Version]) -> None:
    assert versions_of(merge([piece(arrived)])) == reference(arrived)


@given(VERSIONS)
def test_the_last_of_the_greatest_stamp_wins_and_no_stale_marker_over_a_value(arrived: list[Version]) -> None:
    assert picked(merge([piece(arrived)])) == winners(reference(arrived))


@given(VERSIONS, st.sets(st.integers(0, 3)), st.sets(st.integers(0, 4)))
def test_the_requested_series_of_a_piece_come_and_no_others(
    arrived: list[Version], whole: set[int], chosen: set[int]
) -> None:
    merged = merge([piece(arrived)])
    of_metric = {m: np.array([s for s in sorted(chosen) if s % 3 == m], np.uint64) for m in range(4)}
    [part] = requested([merged], {m: None if m in whole else ids for m, ids in of_metric.items()})
    assert versions_of(part) == [v for v in versions_of(merged) if v[0] % 3 in whole or v[0] in chosen]


def cut(arrived: list[Version]) -> list[list[Version]]:
    """The messages, each whole: what may be redelivered, regrouped and reordered."""
    stamps = sorted({v[3] for v in arrived})
    return [[v for v in arrived if v[3] == s] for s in stamps]


@given(VERSIONS, st.randoms(use_true_random=False), st.integers(0, 3))
def test_merge_is_the_same_however_messages_are_grouped_ordered_and_repeated(
    arrived: list[Version], by: object, extra: int
) -> None:
    messages = cut(arrived)
    copies = messages + by.choices(messages, k=extra) if messages else []  # type: ignore[attr-defined]
    by.shuffle(copies)  # type: ignore[attr-defined]
    at = by.randint(0, len(copies))  # type: ignore[attr-defined]
    left, right = merge([piece(m) for m in copies[:at]]), [piece(m) for m in copies[at:]]
    want = versions_of(merge([piece(arrived)]))
    assert versions_of(merge([left, *right])) == want
    assert versions_of(merge([merge(right), left])) == want
    assert versions_of(merge([left, merge(right), left])) == want


@given(VERSIONS, st.lists(st.booleans(), min_size=6, max_size=6))
def test_left_out_messages_let_the_next_best_win(arrived: list[Version], seen: list[bool]) -> None:
    merged = merge([piece(arrived)])
    stamps = sorted({v[3] for v in arrived})
    shown = dict(zip(stamps, seen, strict=False))
    assert picked(merged, [shown[s] for s in stamps]) == winners([v for v in reference(arrived) if shown[v[3]]])


TABLE: dict[str, tuple[list[Version], list[int]]] = {
    "a corrected value": ([(1, 1, 10, (5, 1, 0, "a")), (1, 1, 11, (6, 1, 0, "a"))], [11]),
    "a late message with an older stamp": ([(1, 1, 11, (6, 1, 0, "a")), (1, 1, 10, (5, 1, 0, "a"))], [11]),
    "one message twice": ([(1, 1, 10, (5, 1, 0, "a"))] * 2, [10]),
    "equal values of two messages": ([(1, 1, 10, (5, 1, 0, "a")), (1, 1, 10, (6, 1, 0, "a"))], [10]),
    "two values in one message": ([(1, 1, 10, (5, 1, 0, "a")), (1, 1, 9, (5, 1, 0, "a"))], [9]),
    "there and back in one message": ([(1, 1, b, (5, 1, 0, "a")) for b in (10, 9, 10)], [10]),
    "two processes in one millisecond": ([(1, 1, 10, (5, 2, 0, "a")), (1, 1, 11, (5, 1, 9, "b"))], [10]),
    "equal stamps of two sources": ([(1, 1, 10, (5, 1, 0, "b")), (1, 1, 11, (5, 1, 0, "a"))], [10]),
    "both zeros": ([(1, 1, bits(0.0), (5, 1, 0, "a")), (1, 1, bits(-0.0), (5, 1, 0, "a"))], [bits(-0.0)]),
}


@pytest.mark.parametrize(("arrived", "won"), TABLE.values(), ids=TABLE)
def test_the_winner_is_right_for(arrived: list[Version], won: list[int]) -> None:
    assert list(picked(merge([piece(arrived)])).values()) == won


def test_merge_of_nothing_is_empty() -> None:
    assert len(merge([])) == len(merge([EMPTY, EMPTY])) == 0
    assert len(pick(EMPTY).ts) == 0


@given(VERSIONS, st.sets(st.integers(0, 3)))
def test_narrow_keeps_the_wanted_series_only(arrived: list[Version], wanted: set[int]) -> None:
    merged = merge([piece(arrived)])
    mask = np.array([s in wanted for s in merged.series.tolist()], np.bool_)
    assert versions_of(narrow(merged, mask)) == [v for v in versions_of(merged) if v[0] in wanted]


@pytest.mark.parametrize("distinct", [1, 3, 100_000], ids=["one value", "three values", "as many as rows"])
def test_many_values_for_one_time_in_one_message_do_not_make_a_merge_slow(distinct: int) -> None:
    one, count = piece([(1, 1, 0, (5, 1, 0, "a"))]), 100_000
    counts, message = np.array([count], np.int32), np.zeros(count, np.int32)
    values = (np.arange(count) % distinct).astype(np.float64)
    arrived = Piece(one.messages, one.series, one.metrics, counts, message, np.ones(count, np.int64), values)
    got, taken_s = timed(lambda: merge([arrived]))
    assert taken_s < 0.5
    assert got.values.tolist() == arrived.values[-distinct:].tolist()


MERGES = """
import subprocess
import sys

import numpy as np
from pathlib import Path
from spm.store.versions.merge import Piece, merge_emptying
from spm.store.encoding.blocks import Messages
from tests.support.store_columns import compile_kernels

def status(name):
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name + ":")]
    return 1024 * int(line.split()[1])

def pieces(series, steps, count):
    ids = np.arange(series, dtype=np.uint64)
    messages = Messages(*(np.arange(1),) * 3, np.zeros(1, np.int32), ("a",))
    rows = series * steps
    for n in range(count):
        ts = np.tile(np.arange(steps) + n * steps, series)
        each = np.full(series, steps, np.int32)
        yield Piece(messages, ids, ids, each, np.zeros(rows, np.int32), ts, np.ones(rows))

compile_kernels()
merge_emptying(list(pieces(10, 10, 2)))
parts = list(pieces(10_000, 25, 8))
before = status("VmRSS")
Path("/proc/self/clear_refs").write_text("5")  # the highest use so far is forgotten
merged = merge_emptying(parts)
print(len(merged), len(parts), (status("VmHWM") - before) / len(merged))
"""


@pytest.mark.slow
def test_a_merge_of_pieces_that_nobody_else_holds_needs_less_than_one_and_a_half_of_their_bytes_beside_them() -> None:
    done = subprocess.run([sys.executable, "-c", MERGES], capture_output=True, text=True, timeout=120, check=True)
    rows, pieces_left, bytes_per_row = done.stdout.split()
    assert (rows, pieces_left) == ("2000000", "0")
    assert float(bytes_per_row) < 28  # of 20 in the pieces
