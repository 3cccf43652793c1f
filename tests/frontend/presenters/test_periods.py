"""How often series have samples, learned from their times."""

import numpy as np
import pytest

from frontend.presenters.periods import period_of
from spm.query.request.batches import SeriesBatch


def batch(*series: list[int]) -> SeriesBatch:
    """Series with samples at these seconds."""
    offsets = np.concatenate(([0], np.cumsum([len(times) for times in series]))).astype(np.int64)
    ts = np.array([1_000 * second for times in series for second in times], np.int64)
    return SeriesBatch([{}] * len(series), offsets, ts, np.zeros(len(ts)))


def every(period_s: int, count: int = 10) -> list[int]:
    """Times one period apart."""
    return list(range(0, period_s * count, period_s))


@pytest.mark.parametrize(
    ("series", "period_s", "is_sure"),
    [
        ([every(10)], 10, True),
        ([every(60), every(60)], 60, True),
        ([[0, 10, 20, 300, 310, 320]], 10, True),
        ([every(10)] * 9 + [every(60)], 10, True),
        ([every(10)] * 4 + [every(60)], 60, True),
        ([every(10)] * 3 + [[0, 300]], 10, False),
        ([[0, 300]], None, False),
        ([[]], None, False),
        ([], None, False),
    ],
    ids=["one", "equal", "an outage", "one of ten", "one of five", "too few samples of one", "of all", "empty", "none"],
)
def test_the_period_is_that_of_nine_of_ten_series(series: list[list[int]], period_s: int | None, is_sure: bool) -> None:
    expected_ms = period_s * 1_000 if period_s else None
    assert period_of(batch(*series)) == (expected_ms, is_sure)


@pytest.mark.parametrize("jitter_ms", [0, 3, 400])
def test_the_jitter_of_a_sender_does_not_count(jitter_ms: int) -> None:
    ts = np.arange(10, dtype=np.int64) * 60_000 + np.resize([0, jitter_ms], 10)
    assert period_of(SeriesBatch([{}], np.array([0, 10]), ts, np.zeros(10)))[0] == 60_000


def test_senders_of_less_than_a_second_keep_their_period() -> None:
    ts = np.arange(10, dtype=np.int64) * 100
    assert period_of(SeriesBatch([{}], np.array([0, 10]), ts, np.zeros(10)))[0] == 100
