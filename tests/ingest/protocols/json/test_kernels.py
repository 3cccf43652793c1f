"""The compiled readers of JSON read every item, in every spelling, as the exact readers do."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.protocols.common.series_cache import SeriesCache
from ingest.protocols.json import collectd
from ingest.protocols.json import samples as json_samples
from spm.errors import BadMessage, LimitExceeded
from spm.limits import FUTURE_MS, MESSAGE_LINES_MAX
from spm.wire import Parsed

NOW_MS = 1_700_000_000_000
SAMPLES, LISTS = SeriesCache(), SeriesCache()  # known series stay known from one example to the next

WORDS = st.sampled_from(["NaN", "+Inf", "Inf", "-Inf", "x", True, None])
NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**20), 10**20)
TIMES = st.sampled_from([NOW_MS, NOW_MS, 1, 0, -5, NOW_MS + FUTURE_MS, NOW_MS + FUTURE_MS + 1, 10**30, 1.0, None, "a"])
METRICS = st.sampled_from(["m", "m", "n", "é", 'a"b', "", "m" * 257, 5])
TAGS = st.sampled_from([{}, {"a": "b"}, {"c": "]}", "a": "ü"}, {"a": ""}, {"__name__": "x"}, {"a": 1}, None])
SPACES = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", "\t: ")])


def objects(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Objects with these fields, each of which may be missing, in any order, and perhaps one more."""
    some = st.fixed_dictionaries({}, optional={**fields, "more": st.just([{"a": "}"}])})
    plain = st.fixed_dictionaries(fields)
    return (plain | plain | some).flatmap(lambda one: st.permutations(list(one.items())).map(dict))


SAMPLE = objects(metric=METRICS, tags=TAGS, value=NUMBERS | WORDS, time=TIMES)
SERIES = objects(
    metric=METRICS, tags=TAGS, times=st.lists(TIMES, max_size=3), values=st.lists(NUMBERS | WORDS, max_size=3)
)
PUSH = st.builds(lambda s: {"samples": s}, st.lists(SAMPLE, max_size=5)) | st.builds(
    lambda s: {"series": s}, st.lists(SERIES, max_size=5)
)
LIST = objects(
    values=st.lists(NUMBERS | st.none(), max_size=2),
    dsnames=st.lists(st.sampled_from(["value", "rx"]), max_size=2),
    time=st.sampled_from([NOW_MS / 1000, 1.0005, 0, -1, 1e300]),
    host=st.sampled_from(["h", "", 'a"']),
    plugin=st.sampled_from(["cpu", "df"]),
    plugin_instance=st.sampled_from(["", "0"]),
    type=st.just("cpu"),
)


def summary(parsed: Parsed) -> tuple[object, ...]:
    names = [parsed.series.canonical(int(i)) for i in parsed.series_index]
    bits = np.where(np.isnan(parsed.values), np.nan, parsed.values).tobytes()
    return names, parsed.ts.tolist(), bits, parsed.timeless, parsed.rejected, parsed.rejections


@settings(deadline=None)  # the first one compiles
@given(PUSH, SPACES, st.booleans())
def test_a_kernel_reads_every_push_as_the_exact_reader_does(push: Any, spaces: tuple[str, str], plain: bool) -> None:
    body = json.dumps(push, separators=spaces, ensure_ascii=plain).encode()
    try:
        exact = summary(_exact(body))
    except BadMessage:
        with pytest.raises(BadMessage):
            json_samples.parse(body, now_ms=NOW_MS, cache=SAMPLES)
        return
    for _ in range(2):
        assert summary(json_samples.parse(body, now_ms=NOW_MS, cache=SAMPLES)) == exact


def _exact(body: bytes) -> Parsed:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_samples, "_EXACT_MAX", -1)
        return json_samples.parse(body, now_ms=NOW_MS, cache=SeriesCache())


@settings(deadline=None)
@given(st.lists(LIST, max_size=4), SPACES)
def test_a_list_of_collectd_reads_the_same_whether_its_series_are_known_or_not(
    lists: list[Any], spaces: tuple[str, str]
) -> None:
    body = json.dumps(lists, separators=spaces).encode()
    alone = [collectd.parse(json.dumps([one]).encode(), now_ms=NOW_MS, cache=SeriesCache()) for one in lists]
    for _ in range(2):
        read = summary(collectd.parse(body, now_ms=NOW_MS, cache=LISTS))
        assert read[0] == [name for one in alone for name in summary(one)[0]]  # type: ignore[attr-defined]
        assert read[1] == [ms for one in alone for ms in one.ts.tolist()]
        assert read[2] == b"".join(summary(one)[2] for one in alone)  # type: ignore[misc]
        assert read[4] == sum(one.rejected for one in alone)


def test_a_body_of_odd_items_is_read_completely_without_the_kernel() -> None:
    items = [{"metric": "m", "value": n, "time": 5} for n in range(1_000)]
    body = json.dumps({"samples": items}).replace('"value"', '"\\u0076alue"').encode()
    parsed = json_samples.parse(body, now_ms=NOW_MS, cache=SeriesCache())
    assert parsed.values.tolist() == list(range(1_000))


def test_columns_of_a_wrong_unit_get_a_hint_however_many_samples_they_hold() -> None:
    times = [NOW_MS * 1_000] * 60_000
    items = [{"metric": f"m{n}", "times": times, "values": [1] * len(times)} for n in range(5)]
    parsed = json_samples.parse(json.dumps({"series": items}).encode(), now_ms=NOW_MS, cache=SeriesCache())
    assert (parsed.rejected, len(parsed.rejections)) == (300_000, 5)
    assert "microseconds" in parsed.rejections[0].reason


GIVEN_UP = {
    "samples": (json_samples.parse, b'{"samples":[', b"]}"),
    "columns": (json_samples.parse, b'{"series":[', b"]}"),
    "collectd": (collectd.parse, b"[", b"]"),
}


@pytest.mark.parametrize(("read", "head", "tail"), GIVEN_UP.values(), ids=GIVEN_UP)
def test_a_body_of_nothing_but_rejections_is_given_up(read: Any, head: bytes, tail: bytes) -> None:
    body = head + b"{}," * (MESSAGE_LINES_MAX + 5_000) + b"{}" + tail
    with pytest.raises(LimitExceeded, match="rejected"):
        read(body, now_ms=NOW_MS)


@pytest.mark.parametrize("read", [json_samples.parse, collectd.parse], ids=["json", "collectd"])
@pytest.mark.parametrize("deep", [b"[", b'{"a":', b'{"series":[', b'[{"values":['], ids=str)
def test_a_bottomless_body_is_rejected(read: Any, deep: bytes) -> None:
    with pytest.raises(BadMessage):
        read(deep * 10**5, now_ms=NOW_MS)
