"""The chart of a mail: a pure function of its points, small, fast, in the pages' colours, and whole for any points."""

import io
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from alerts.notify.chart import HEIGHT, SCALE, WIDTH, ChartData, draw
from tests.alerts.conftest import START_MS

LINE, BAD, BAD_SOFT = (0x2F, 0x5B, 0xD8), (0xA8, 0x28, 0x28), (0xFB, 0xE6, 0xE4)


def data(**changes: Any) -> ChartData:
    fields: dict[str, Any] = {
        "from_ms": START_MS,
        "step_ms": 20_000,
        "values": [10.0] * 120 + [90.0] * 120,
        "threshold": 50.0,
        "start_ms": START_MS + 120 * 20_000,
        "end_ms": None,
    }
    return ChartData(**{**fields, **changes})


def picture(chart: ChartData) -> Image.Image:
    return Image.open(io.BytesIO(draw(chart))).convert("RGB")


def near(image: Image.Image, colour: tuple[int, int, int], box: tuple[int, int, int, int]) -> bool:
    """Whether a part of the picture has the colour, within what its palette of 32 rounds."""
    pixels = image.crop(box).getcolors(1_000_000) or []
    return any(all(abs(a - b) <= 8 for a, b in zip(each, colour, strict=True)) for _, each in pixels)  # type: ignore[arg-type]


def test_it_shows_the_line_the_threshold_and_when_it_fired() -> None:
    image = picture(data())
    assert image.size == (WIDTH * SCALE, HEIGHT * SCALE) == (1_200, 480)
    left, right = (130, 30, 600, 420), (680, 30, 1_170, 420)
    assert near(image, LINE, left)
    assert near(image, BAD, left)
    assert near(image, BAD_SOFT, right)
    assert not near(image, BAD_SOFT, left)


def test_the_same_points_are_the_same_bytes_and_others_are_not() -> None:
    assert draw(data()) == draw(data()) != draw(data(threshold=60.0))


def test_a_gap_in_the_data_is_a_gap_in_the_line() -> None:
    image = picture(data(values=[10.0] * 60 + [None] * 120 + [10.0] * 60, threshold=None, start_ms=START_MS + 10**9))
    assert not near(image, LINE, (500, 20, 800, 420))


@pytest.mark.timed
def test_it_is_small_and_fast() -> None:
    noisy = data(values=[float(hash((n, "x")) % 1_000) for n in range(240)])
    draw(noisy)
    before_s = time.thread_time()
    assert len(draw(noisy)) < 40_000
    assert time.thread_time() - before_s < 0.08


@settings(max_examples=40, deadline=None)
@given(
    values=st.lists(st.none() | st.floats(width=64), min_size=1, max_size=300),
    threshold=st.none() | st.floats(allow_nan=False, allow_infinity=False, width=32),
    start=st.integers(-(10**9), 10**9),
)
def test_any_points_are_drawn(values: list[float | None], threshold: float | None, start: int) -> None:
    sound = [value if value is None or abs(value) < 1e300 else None for value in values]
    assert len(draw(data(values=sound, threshold=threshold, start_ms=START_MS + start))) < 40_000
