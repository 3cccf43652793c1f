"""OpenTSDB's telnet-style lines become points, or are rejected with a reason."""

import pytest

from ingest.agent.lines import Point
from ingest.sidecar.intake import UnreadableLine
from ingest.sidecar.opentsdb import OpenTsdb, read
from spm import limits

NOW_MS = 1_700_000_000_000
LINE = "put sys.cpu.user 1700000001 1.5 host=web01 cpu=0"
LABELS = {"host": "web01", "cpu": "0"}


@pytest.mark.parametrize(
    ("line", "point"),
    [
        pytest.param(LINE, Point("sys.cpu.user", {"value": 1.5}, LABELS, 1_700_000_001_000), id="seconds"),
        pytest.param("put a 1700000001250 -1e3", Point("a", {"value": -1000.0}, {}, 1_700_000_001_250), id="ms"),
        pytest.param("put a 1700000001.250 1", Point("a", {"value": 1.0}, {}, 1_700_000_001_250), id="a fraction"),
    ],
)
def test_line_becomes_its_point(line: str, point: Point) -> None:
    assert read(line, NOW_MS) == point


@pytest.mark.parametrize(
    "line",
    [
        "",
        "version",
        "put a 5",
        "put a x 1 h=a",
        "put a 5 x h=a",
        "put a 5 nan",
        "put a 0 1",
        "put a 5 1 h",
        "get a 5 1",
    ],
)
def test_line_that_is_no_point_is_unreadable(line: str) -> None:
    with pytest.raises(UnreadableLine):
        read(line, NOW_MS)


def test_points_beyond_the_bound_are_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SIDECAR_POINTS_MAX", 1)
    lines = OpenTsdb()
    assert [lines.add(LINE, NOW_MS), lines.add(LINE, NOW_MS), len(lines.points(NOW_MS))] == [True, False, 1]
