"""A column of numbers is written as each number alone is by the simple implementation."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spm.query.formats import float_text, prometheus
from spm.query.promql.engine import Result

BITS = st.integers(0, 2**64 - 1)
DECIMALS = st.builds(lambda n, k: n / 10**k, st.integers(-(10**17), 10**17), st.integers(0, 20))
EDGES = st.sampled_from([0.0, -0.0, 1e-6, 9.999999999999999e-7, 1e15, 999999999999999.9, 1e20, 1e21, 5e-324, 1e10])


@settings(deadline=None, max_examples=300)
@given(st.lists(st.one_of(st.floats(), DECIMALS, EDGES, BITS.map(lambda n: float(np.uint64(n).view(np.float64))))))
def test_column_is_written_as_each_number_alone(values: list[float]) -> None:
    column = np.array(values, np.float64)
    assert float_text.text_column(column).to_pylist() == [prometheus.number(value) for value in column.tolist()]


def test_averages_and_borders_are_written_as_each_number_alone() -> None:
    draw = np.random.default_rng(8)
    borders = np.array([0.0, 1e-6, 1e6, 1e8, 1e9, 1e15, 2.0**53, 1e16, 1e17, 1e20, 1e21, np.inf])
    near = [borders, np.nextafter(borders, 0.0), np.nextafter(borders, 2 * borders)]
    column = np.concatenate(
        [
            draw.uniform(0, 100, (10_000, 12)).round(2).mean(axis=1),
            *near,
            *(-each for each in near),
            [np.nan],
            draw.normal(size=10_000) * 10.0 ** draw.integers(-8, 22, 10_000),
            draw.integers(10**7, 10**15, 5_000) / 10.0 ** draw.integers(0, 7, 5_000),
        ]
    )
    assert float_text.text_column(column).to_pylist() == [prometheus.number(value) for value in column.tolist()]


def test_many_random_bits_are_written_as_each_number_alone() -> None:
    draw = np.random.default_rng(7)
    column = np.concatenate(
        [
            draw.integers(0, 2**64, 20_000, dtype=np.uint64).view(np.float64),
            draw.uniform(-100, 100, 5_000).round(2),
            10.0 ** draw.integers(-12, 24, 5_000) * draw.integers(1, 1_000, 5_000),
        ]
    )
    assert float_text.text_column(column).to_pylist() == [prometheus.number(value) for value in column.tolist()]


@settings(deadline=None)
@given(st.integers(0, 5), st.integers(1, 6), st.integers(0, 2**30))
def test_matrix_reads_back_to_its_points(series: int, steps: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    values, present = draw.normal(size=(series, steps)), draw.random((series, steps)) < 0.6
    times = 1_700_000_000_000 + np.arange(steps, dtype=np.int64) * 1_500
    labels = [{"n": str(n)} for n in range(series)]
    body = json.loads(prometheus.query_body(Result("matrix", times, labels, values, present)))["data"]["result"]
    assert body == [
        {
            "metric": labels[n],
            "values": [
                [t / 1000, prometheus.number(float(v))]
                for t, v, there in zip(times.tolist(), values[n], present[n], strict=True)
                if there
            ],
        }
        for n in range(series)
    ]


def test_samples_are_written_as_if_joined_by_hand() -> None:
    draw = np.random.default_rng(9)
    counts = draw.integers(0, 5, 50)
    values, steps = draw.normal(size=counts.sum()), draw.integers(0, 7, counts.sum())
    values[::3] = values[::3].round(1)
    names, times = _named(50), 1_700_000_000 + 1e7 * 9.0 ** np.arange(7) / 4
    text = float_text.samples_json(float_text.format_floats(times), steps, values, counts, *names)
    points = [_point(times[s], v) for s, v in zip(steps.tolist(), values.tolist(), strict=True)]
    expected = [points[end - count : end] for end, count in zip(np.cumsum(counts), counts, strict=True)]
    assert bytes(text).decode() == ",".join(
        f'{{"metric":{{"n":"{n}"}},"values":[{",".join(each)}]}}' for n, each in enumerate(expected)
    )


@pytest.mark.parametrize("single", [False, True])
def test_elements_are_written_as_if_joined_by_hand(single: bool) -> None:
    draw = np.random.default_rng(9)
    steps = 1 if single else 7
    values, present = draw.normal(size=(50, 2 * steps))[:, ::2], draw.random((50, steps)) < 0.6
    present[:, 0] |= single
    names, times = _named(50), 1_700_000_000 + 1e7 * 9.0 ** np.arange(steps) / 4
    text = float_text.matrix_json(float_text.format_floats(times), values, present, *names, single=single)
    expected = [
        ",".join(_point(times[s], own[s]) for s in np.flatnonzero(there))
        for own, there in zip(values, present, strict=True)
    ]
    key, around = ("value", "%s") if single else ("values", "[%s]")
    assert bytes(text).decode() == ",".join(
        f'{{"metric":{{"n":"{n}"}},"{key}":{around % each}}}' for n, each in enumerate(expected)
    )


def _named(count: int) -> tuple[np.ndarray, np.ndarray]:
    names = [b'{"n":"%d"}' % n for n in range(count)]
    return np.frombuffer(b"".join(names), np.uint8), np.cumsum([0, *map(len, names)])


def _point(time: float, value: float) -> str:
    return f'[{prometheus.number(time)},"{prometheus.number(value)}"]'


def test_answer_larger_than_one_buffer_is_whole() -> None:
    count = prometheus._POINTS_AT_ONCE // 100 + 1
    values = np.arange(count * 250, dtype=np.float64).reshape(count, 250)
    times = np.arange(250, dtype=np.int64) * 1_000
    text = Result("matrix", times, [{"n": str(n)} for n in range(count)], values, np.ones(values.shape, np.bool_))
    body = json.loads(prometheus.query_body(text))["data"]["result"]
    assert [float(value) for one in body for _, value in one["values"]] == values.ravel().tolist()
