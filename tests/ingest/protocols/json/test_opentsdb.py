"""OpenTSDB's points are read by their own rules: seconds and ms, numbers as text, one point or a list."""

import json
from typing import Any

import pytest

from ingest.protocols.json import opentsdb
from spm.errors import BadMessage
from spm.wire import Parsed, parse_canonical

NOW_MS = 1_700_000_000_000
POINT: dict[str, Any] = {"metric": "sys.cpu.user", "timestamp": 1_699_999_000, "value": 1.5, "tags": {"host": "a"}}
IN_MS = 1_699_999_000_123
FIELDS = {"value": "5", "timestamp": "7"}  # tags with the names of fields


def sample(
    metric: str = "sys.cpu.user", labels: dict[str, str] = POINT["tags"], ts: int = 1_699_999_000_000
) -> tuple[str, dict[str, str], int, float]:
    return metric, labels, ts, 1.5


SAMPLE = sample()


def samples(parsed: Parsed) -> list[tuple[str, dict[str, str], int, float]]:
    forms = [parse_canonical(parsed.series.canonical(int(i))) for i in parsed.series_index]
    return [(*form, int(ts), float(value)) for form, ts, value in zip(forms, parsed.ts, parsed.values, strict=True)]


def read(body: object) -> Parsed:
    return opentsdb.parse(json.dumps(body).encode(), now_ms=NOW_MS)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(POINT, [SAMPLE], id="one point"),
        pytest.param([POINT, {**POINT, "timestamp": IN_MS}], [SAMPLE, sample(ts=IN_MS)], id="seconds and ms"),
        pytest.param([{**POINT, "value": "1.5"}], [SAMPLE], id="a number as text"),
        pytest.param([{**POINT, "timestamp": "1699999000"}], [SAMPLE], id="a time as text"),
        pytest.param([{**POINT, "tags": FIELDS}], [sample(labels=FIELDS)], id="tags with the names of fields"),
        pytest.param([{**POINT, "metric": "a\u00e4"}], [sample(metric="a\u00e4")], id="an escape"),
    ],
)
def test_points_are_read(body: object, expected: object) -> None:
    parsed = read(body)
    assert samples(parsed) == expected
    assert parsed.rejected == 0


@pytest.mark.parametrize(
    "bad",
    [
        {name: value for name, value in POINT.items() if name != "timestamp"},
        {**POINT, "value": "much"},
        {**POINT, "timestamp": -5},
        {**POINT, "timestamp": 4_000_000_000},
        {**POINT, "tags": {"host": 5}},
        {**POINT, "metric": ""},
        {"tags": {"metric": "x"}},
        "text",
    ],
    ids=str,
)
def test_a_bad_point_is_rejected_alone_by_its_number(bad: object) -> None:
    parsed = read([POINT, bad, {**POINT, "value": 2}])
    assert [value for *_, value in samples(parsed)] == [1.5, 2.0]
    assert (parsed.rejected, [one.line for one in parsed.rejections]) == (1, [2])
    assert parsed.places is not None
    assert parsed.places([0, 1]) == [1, 3]


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"5", b'[{"metric": 1}', b"\xff", b"[" * 100_000])
def test_what_is_not_opentsdbs_json_is_refused(body: bytes) -> None:
    with pytest.raises(BadMessage):
        opentsdb.parse(body, now_ms=NOW_MS)


def test_a_body_of_bad_points_alone_has_their_reasons() -> None:
    parsed = read([{"metric": "a"}, {}])
    assert (len(parsed.ts), parsed.rejected, [one.line for one in parsed.rejections]) == (0, 2, [1, 2])
