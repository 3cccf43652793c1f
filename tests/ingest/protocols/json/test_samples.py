"""The JSON forms of a push by examples."""

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.protocols.common import line_reader, naming, series_cache
from ingest.protocols.common.series_cache import SeriesCache
from ingest.protocols.common.times import TIME_BEFORE_1970, TIME_TOO_FAR_AHEAD
from ingest.protocols.json import samples as json_samples
from ingest.protocols.json.samples import UNEQUAL, UNKNOWN_TEXT, parse
from spm import limits
from spm.errors import BadMessage, LimitExceeded
from spm.wire import Parsed, canonical, parse_canonical

NOW_MS = 1_700_000_000_000
BOTTOMLESS = b'{"samples":[{"metric":"m","value":' + b"[" * 10**5
HALF = b'{"samples":[{"metric":"\\ud800","value":1}]}'


def read(push: Any) -> Parsed:
    return parse(json.dumps(push).encode(), now_ms=NOW_MS)


def sample(**changes: Any) -> dict[str, Any]:
    return {"metric": "m", "tags": {"host": "a"}, "value": 1.5, "time": 5, **changes}


def test_sample_keeps_metric_tags_value_and_time() -> None:
    parsed = read({"samples": [sample()]})
    assert parse_canonical(parsed.series.canonical(0)) == ("m", {"host": "a"})
    assert (parsed.ts.tolist(), parsed.values.tolist(), parsed.timeless) == ([5], [1.5], 0)


def test_columns_keep_all_samples_of_their_series() -> None:
    one = {"metric": "m", "tags": {"host": "a"}, "times": [1, 2, 3], "values": [1, 2.5, "NaN"]}
    parsed = read({"series": [one, {"metric": "n", "times": [4], "values": [-1]}]})
    assert parsed.ts.tolist() == [1, 2, 3, 4]
    assert parsed.series_index.tolist() == [0, 0, 0, 1]
    assert np.array_equal(parsed.values, [1, 2.5, math.nan, -1], equal_nan=True)


def test_both_forms_in_one_body_share_their_series() -> None:
    parsed = read(
        {"samples": [sample()], "series": [{"metric": "m", "tags": {"host": "a"}, "times": [6], "values": [2]}]}
    )
    assert (parsed.series_index.tolist(), parsed.ts.tolist()) == ([0, 0], [5, 6])


@pytest.mark.parametrize("change", [{"time": None}, {}], ids=["null", "absent"])
def test_sample_without_time_gets_the_servers_and_is_counted(change: dict[str, Any]) -> None:
    parsed = read({"samples": [{"metric": "m", "value": 1, **change}]})
    assert (parsed.ts.tolist(), parsed.timeless) == ([NOW_MS], 1)


@pytest.mark.parametrize(
    ("text", "value"), [("+Inf", math.inf), ("Inf", math.inf), ("-Inf", -math.inf)], ids=["plus", "no sign", "minus"]
)
def test_infinity_is_written_as_text(text: str, value: float) -> None:
    assert read({"samples": [sample(value=text)]}).values.tolist() == [value]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        pytest.param(sample(metric=""), naming.NO_METRIC, id="no name"),
        pytest.param(sample(tags={"a": ""}), naming.NO_LABEL_VALUE, id="a tag without value"),
        pytest.param(sample(tags={"__name__": "x"}), naming.LABEL_RESERVED, id="the reserved tag"),
        pytest.param(sample(tags={f"t{i}": "x" for i in range(65)}), naming.TOO_MANY_LABELS, id="too many tags"),
        pytest.param(sample(value="high"), UNKNOWN_TEXT, id="a word for a value"),
        pytest.param(sample(time=0), TIME_BEFORE_1970, id="time zero"),
        pytest.param(sample(time=NOW_MS + limits.FUTURE_MS + 1), TIME_TOO_FAR_AHEAD, id="a time too late"),
        pytest.param(sample(time=10**30), TIME_TOO_FAR_AHEAD, id="a time beyond 64 bits"),
    ],
)
def test_bad_sample_rejects_itself_with_its_place(bad: dict[str, Any], reason: str) -> None:
    parsed = read({"samples": [sample(value=1), bad, sample(value=3)]})
    assert parsed.values.tolist() == [1.0, 3.0]
    assert [(r.line, r.reason) for r in parsed.rejections] == [(2, reason)]


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param("{}", id="nothing in it"),
        pytest.param('{"metric":"m","value":true}', id="a boolean"),
        pytest.param('{"metric":"m","value":1e999}', id="beyond float64"),
        pytest.param('{"metric":"m","value":1,"time":"now"}', id="a word for a time"),
        pytest.param('{"metric":5,"value":1}', id="a number for a name"),
        pytest.param("7", id="no object"),
    ],
)
def test_malformed_sample_rejects_itself(bad: str) -> None:
    parsed = parse(b'{"samples":[' + bad.encode() + b',{"metric":"m","value":3}]}', now_ms=NOW_MS)
    assert parsed.values.tolist() == [3.0]
    assert [r.line for r in parsed.rejections] == [1]


@pytest.mark.parametrize("known", [False, True], ids=["new series", "known series"])
@pytest.mark.parametrize(
    "item",
    [
        '{"samples": [%s, {"metric": "m", "tags": {"host": "a"}, "value": 1, "timestamp": 1700000000000}]}',
        '{"samples": [%s, {"metric": "m", "labels": {"host": "a"}, "value": 1}]}',
        '{"series": [%s, {"metric": "m", "tags": {"host": "a"}, "times": [5], "values": [1], "unit": "s"}]}',
    ],
)
def test_an_unknown_member_rejects_its_item_by_name(item: str, known: bool) -> None:
    """With `timestamp` for `time` 2,499 hours became one moment, and nobody was told."""
    good = '{"metric": "m", "tags": {"host": "a"}, '
    good += '"times": [5], "values": [1]}' if "series" in item else '"value": 1, "time": 5}'
    cache = SeriesCache()
    if known:
        parse((item.split("%s")[0] + good + "]}").encode(), now_ms=NOW_MS, cache=cache)
    parsed = parse((item % good).encode(), now_ms=NOW_MS, cache=cache)
    assert (len(parsed.ts), parsed.rejected, parsed.rejections[0].line) == (1, 1, 2)
    assert any(name in parsed.rejections[0].reason for name in ("timestamp", "labels", "unit"))
    assert "wanted" in parsed.rejections[0].reason


def test_bad_times_in_columns_reject_their_samples_only() -> None:
    times = [0, 5, NOW_MS * 1000, 10**30]
    parsed = read({"series": [{"metric": "m", "times": times, "values": [1, 2, 3, 4]}]})
    assert (parsed.ts.tolist(), parsed.values.tolist(), parsed.rejected) == ([5], [2.0], 3)
    assert [r.reason for r in parsed.rejections] == [
        f"1 of 4 samples: {TIME_BEFORE_1970}",
        f"2 of 4 samples: {TIME_TOO_FAR_AHEAD} It looks like microseconds, read as milliseconds",
    ]


def test_columns_of_unequal_length_reject_their_series() -> None:
    short = {"metric": "m", "times": [1, 2], "values": [1]}
    parsed = read({"series": [short, {"metric": "m", "times": [3], "values": [4]}]})
    assert parsed.ts.tolist() == [3]
    assert [(r.line, r.reason) for r in parsed.rejections] == [(1, UNEQUAL)]


@pytest.mark.parametrize(
    "body",
    [b"", b"cpu v=1", b"[]", b"{}", b'{"samples":null}', b'{"samples":[', b"\xff", BOTTOMLESS, HALF],
    ids=["empty", "lines", "a list", "no samples", "null", "cut off", "no text", "bottomless", "half a character"],
)
def test_body_of_another_form_is_rejected_completely(body: bytes) -> None:
    with pytest.raises(BadMessage):
        parse(body, now_ms=NOW_MS)


def test_body_with_too_many_samples_is_rejected_completely(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_samples, "MESSAGE_SAMPLES_MAX", 2)
    columns = {"metric": "m", "times": [1, 2, 3], "values": [1, 2, 3]}
    assert len(read({"samples": [sample(), sample()]}).ts) == 2
    half = {"metric": "m", "times": [1, 2], "values": [1, 2]}
    for push in ({"samples": [sample()] * 3}, {"series": [columns]}, {"series": [half, half]}):
        with pytest.raises(LimitExceeded):
            read(push)


def test_body_with_too_many_commas_is_rejected_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_samples, "JSON_COMMAS_MAX", 2)
    parse(b'{"samples":[{"metric":"m","value":1,"time":5}]}', now_ms=NOW_MS)
    with pytest.raises(LimitExceeded, match="commas"):
        parse(b"[,,,", now_ms=NOW_MS)


def test_body_with_too_much_series_text_is_rejected_completely(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (line_reader, series_cache):
        monkeypatch.setattr(module, "MESSAGE_SERIES_BYTES_MAX", len(canonical("m", {"host": "a"})))
    read({"samples": [sample(), sample()]})
    with pytest.raises(LimitExceeded, match="series names"):
        read({"samples": [sample(), sample(metric="n")]})


def test_rejections_are_listed_to_the_limit_and_all_counted() -> None:
    parsed = read({"samples": [{}] * (limits.REJECTIONS_MAX + 1)})
    assert (len(parsed.rejections), parsed.rejected) == (limits.REJECTIONS_MAX, limits.REJECTIONS_MAX + 1)


@given(st.lists(st.tuples(st.sampled_from("mn"), st.floats(), st.integers(1, NOW_MS)), max_size=20))
def test_samples_and_columns_say_the_same(rows: list[tuple[str, float, int]]) -> None:
    def text(value: float) -> float | str:
        return value if math.isfinite(value) else {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, "NaN")

    rows = [("m", 1.5, 5), *rows]
    listed = read({"samples": [sample(metric=m, value=text(v), time=t) for m, v, t in rows]})
    tags = {"host": "a"}
    columns = read({"series": [{"metric": m, "tags": tags, "times": [t], "values": [text(v)]} for m, v, t in rows]})
    assert listed.values.tobytes() == columns.values.tobytes()
    assert (listed.ts.tolist(), listed.series_index.tolist()) == (columns.ts.tolist(), columns.series_index.tolist())
