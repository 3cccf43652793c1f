"""Claims about the named places where work may be killed: each is in the code, and a test has been to each."""

from pathlib import Path

from rollups.crash_points import POINTS

ROOT = Path(__file__).resolve().parents[2]
_TESTS = sorted(path for room in ("rollups", "model") for path in (ROOT / "tests" / room).rglob("test_*.py"))
_RUN = POINTS[: POINTS.index("month published") + 1]  # test_run goes through these by their order


def _text(paths: list[Path]) -> str:
    return "\n".join(path.read_text() for path in paths)


def test_there_are_at_least_twenty_and_no_name_repeats() -> None:
    assert len(set(POINTS)) == len(POINTS) >= 20


def test_every_point_is_somewhere_in_the_code() -> None:
    code = _text([path for path in (ROOT / "rollups").rglob("*.py") if path.name != "crash_points.py"])
    assert [point for point in POINTS if f'"{point}"' not in code] == []


def test_every_point_is_visited_by_a_test() -> None:
    tests = _text([path for path in _TESTS if path.name != "test_crash_points.py"])
    assert [point for point in POINTS if point not in _RUN and f'"{point}"' not in tests] == []
