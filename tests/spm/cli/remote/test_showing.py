"""What the command line ``spm`` makes of times and series, without a site."""

import subprocess
import sys

import pytest

from spm.cli.remote.charts import Line, draw
from spm.cli.remote.times import read_ms, step_s

NOW_MS = 1_790_000_000_000


def text_of(*lines: Line, width: int = 26, height: int = 4) -> list[str]:
    return ["".join(text for _, text in row) for row in draw(lines, width=width, height=height)]


def test_a_chart_has_its_extremes_at_its_edges_and_its_times_below() -> None:
    top, _, _, bottom, axis = text_of(Line("a", [(0, 1.0), (60, 3.0)]))
    assert (top.split("┤")[0], bottom.split("┤")[0]) == ("3", "1")
    assert (top[-1], bottom[2]) == ("⠈", "⡀")  # the last sample is the highest dot, the first the lowest
    assert axis == "  00:00:00Z      00:01:00Z"


def test_a_chart_leaves_a_gap_where_there_is_no_number() -> None:
    rows = text_of(Line("a", [(0, 1.0), (30, float("nan")), (60, 1.0)]))
    dots = [sign for row in rows[:-1] for sign in row if 0x2800 < ord(sign) <= 0x28FF]
    assert len(dots) == 2
    assert text_of(Line("a", [(0, float("inf"))])) == text_of() == ["no data"]


def test_series_of_a_chart_are_told_apart_by_their_numbers() -> None:
    rows = draw([Line("low", [(0, 0.0), (60, 0.0)]), Line("high", [(0, 9.0), (60, 9.0)])], width=26, height=4)
    assert {number for number, text in rows[0] if text.strip("⠀ 9┤")} == {1}
    assert {number for number, text in rows[3] if text.strip("⠀ 0┤")} == {0}


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        pytest.param("now", NOW_MS, id="now"),
        pytest.param("90m", NOW_MS - 5_400_000, id="ago"),
        pytest.param("1790000000123", 1_790_000_000_123, id="ms"),
        pytest.param("2026-11-21T10:00", 1_795_255_200_000, id="UTC by default"),
        pytest.param("2026-11-21T11:00+01:00", 1_795_255_200_000, id="with a zone"),
    ],
)
def test_a_time_is_read_as_people_type_it(text: str, ms: int) -> None:
    assert read_ms(text, NOW_MS) == ms


@pytest.mark.parametrize("text", ["", "yesterday", "1y", "-1h"])
def test_a_time_that_is_none_says_how_to_write_one(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no time: write 1h \(ago\)"):
        read_ms(text, NOW_MS)


def test_a_step_gives_two_samples_a_column_and_one_a_second_at_most() -> None:
    assert step_s(0, 3_600_000, 90) == 20
    assert step_s(0, 10_000, 90) == 1


def test_the_command_line_needs_no_package_of_the_server() -> None:
    code = "import sys, spm.cli.remote.commands; print([n for n in ('django', 'numpy', 'lmdb') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
