"""The line protocol that the agent writes."""

import math

import pytest

from ingest.agent.lines import Point, render


@pytest.mark.parametrize(
    ("point", "line"),
    [
        pytest.param(Point("cpu", {"x": 1}), "cpu,host=a x=1i 5", id="whole numbers are integers"),
        pytest.param(Point("cpu", {"x": 0.1}), "cpu,host=a x=0.1 5", id="floats keep all their digits"),
        pytest.param(Point("cpu", {"x": math.nan, "y": 1}), "cpu,host=a y=1i 5", id="what is no number is left out"),
        pytest.param(Point("cpu", {"x": math.inf}), "", id="no field, no line"),
        pytest.param(Point("d", {"x": 1}, {"path": "/a b,c=d"}), r"d,host=a,path=/a\ b\,c\=d x=1i 5", id="escapes"),
        pytest.param(Point("d", {"x": 1}, {"path": "C:\\"}), r"d,host=a,path=C:_ x=1i 5", id="no last backslash"),
        pytest.param(Point("d", {"x": 1}, {"path": "a\nb"}), "d,host=a,path=a_b x=1i 5", id="a line stays one line"),
        pytest.param(Point("d", {"x": 1}, {"path": ""}), "d,host=a x=1i 5", id="empty tags are left out"),
        pytest.param(Point("d", {"x": 1}, {"host": "b"}), "d,host=b x=1i 5", id="a point's own tag wins"),
    ],
)
def test_a_point_is_written_as_one_line(point: Point, line: str) -> None:
    assert render([point], labels={"host": "a"}, at_ms=5).decode() == line


def test_points_without_fields_leave_no_empty_line() -> None:
    points = [Point("a", {"x": 1}), Point("b", {}), Point("c", {"x": 2})]
    assert render(points, labels={}, at_ms=1) == b"a x=1i 1\nc x=2i 1"
