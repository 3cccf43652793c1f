"""Durations as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.durations import read, spell
from spm.errors import BadQuery


@pytest.mark.parametrize(
    ("text", "ms"),
    [("90s", 90_000), ("5m", 300_000), ("1h30m", 5_400_000), ("1h 30m", 5_400_000), ("250ms", 250), ("", 0), ("0", 0)],
)
def test_a_duration_is_read(text: str, ms: int) -> None:
    assert read(text) == ms


@pytest.mark.parametrize("text", ["5", "m", "5x", "-5m", "1.5h", "5m5", "٥m", "9999999999s", "5 minutes"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(BadQuery):
        read(text)


@given(st.integers(0, 10**11))
def test_a_spelled_duration_reads_back(ms: int) -> None:
    assert read(spell(ms)) == ms
