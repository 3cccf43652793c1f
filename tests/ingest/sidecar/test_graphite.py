"""Graphite's plain text becomes points, or is rejected with a reason."""

import os
import random

import pytest

from ingest.agent.lines import Point
from ingest.sidecar.graphite import Graphite, read
from ingest.sidecar.intake import Intake, UnreadableLine
from spm import limits

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("line", "point"),
    [
        pytest.param("a.b.c 1.5 1700000001", Point("a.b.c", {"value": 1.5}, {}, 1_700_000_001_000), id="the least"),
        pytest.param(
            "a 1 1700000001.25", Point("a", {"value": 1.0}, {}, 1_700_000_001_250), id="a fraction of seconds"
        ),
        pytest.param("a;host=h;dc=x 1 5", Point("a", {"value": 1.0}, {"host": "h", "dc": "x"}, 5_000), id="tags"),
        pytest.param("a;q=b=c 1 5", Point("a", {"value": 1.0}, {"q": "b=c"}, 5_000), id="an equals in a tag"),
        pytest.param("a 1 -1", Point("a", {"value": 1.0}, {}, NOW_MS), id="minus one is now"),
        pytest.param("a 1 N", Point("a", {"value": 1.0}, {}, NOW_MS), id="N is now"),
        pytest.param("a 1", Point("a", {"value": 1.0}, {}, NOW_MS), id="no time is now"),
        pytest.param("a\t-1e3   5", Point("a", {"value": -1000.0}, {}, 5_000), id="tabs"),
    ],
)
def test_line_becomes_its_point(line: str, point: Point) -> None:
    assert read(line, NOW_MS) == point


@pytest.mark.parametrize(
    "line",
    [
        "a",
        "a x 5",
        "a 1 x",
        "a nan 5",
        "a inf 5",
        "a 1_0 5",
        "a 1 0",
        "a 1 1e12",
        ";h=a 1 5",
        "a;h 1 5",
        "a;=b 1 5",
        "a;h= 1 5",
        "a 1 5 6",
    ],
)
def test_line_of_another_form_is_rejected(line: str) -> None:
    with pytest.raises(UnreadableLine):
        read(line, NOW_MS)


def test_bad_line_rejects_itself_only_and_is_counted() -> None:
    intake = Intake("graphite", Graphite())
    intake.add(b"a 1 5\nbad\n\xff\xfe 2 5\n\nb 3 5\r\n", NOW_MS)
    *points, own = intake.collect(NOW_MS)
    assert [(p.measurement, p.fields["value"]) for p in points] == [("a", 1.0), ("\ufffd\ufffd", 2.0), ("b", 3.0)]
    assert own.fields == {"lines": 4, "unreadable": 1, "dropped": 0, "points": 3}
    assert intake.collect(NOW_MS)[:-1] == []


def test_points_that_wait_are_limited_and_what_is_dropped_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SIDECAR_POINTS_MAX", 2)
    intake = Intake("graphite", Graphite())
    intake.add(b"a 1 5\nb 2 5\nc 3 5", NOW_MS)
    assert [point.measurement for point in intake.collect(NOW_MS)] == ["a", "b", "spm_sidecar"]
    assert intake.dropped == 1


def test_line_one_too_long_is_rejected() -> None:
    intake = Intake("graphite", Graphite())
    intake.add(b"a" * (limits.SIDECAR_LINE_CHARS_MAX - 4) + b" 1 5", NOW_MS)
    assert intake.unreadable == 0
    intake.add(b"a" * (limits.SIDECAR_LINE_CHARS_MAX - 3) + b" 1 5", NOW_MS)
    assert intake.unreadable == 1


def bears_mutations(count: int) -> None:
    draw = random.Random(count)
    for _ in range(count):
        line = bytearray(b"servers.web-1.cpu;host=a;dc=b 1.5e3 1700000001.5\nx 1 5\n")
        for _ in range(draw.randrange(1, 6)):
            at = draw.randrange(len(line) + 1)
            line[at : at + draw.randrange(3)] = draw.choice((draw.randbytes(2), b" ", b";", b"=", b"\n", b"e9"))
        intake = Intake("graphite", Graphite())
        intake.add(bytes(line), NOW_MS)
        assert len(intake.collect(NOW_MS)) - 1 + intake.unreadable == intake.lines


def test_mutated_lines_are_read_or_rejected_and_nothing_else() -> None:
    bears_mutations(10_000)


@pytest.mark.proof
def test_proof_mutated_lines_are_read_or_rejected_at_length() -> None:
    bears_mutations(int(os.environ.get("SPM_MUTATIONS", "1000000")))
