"""The bodies of agents, columns and collectd's lists: the samples they become, and the rejections."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.protocols import columns as protocols_columns
from ingest.protocols.json import collectd
from spm.errors import BadMessage, LimitExceeded
from spm.limits import FUTURE_MS
from spm.wire import SeriesTable, canonical, parse_canonical, series_id
from tests.support.messages import START_MS, message

NOW_MS = START_MS + 60_000


def value_list(**changes: Any) -> dict[str, Any]:
    fields = {
        "values": [1],
        "dsnames": ["value"],
        "time": START_MS / 1000,
        "host": "h",
        "plugin": "load",
        "type": "load",
    }
    return {**fields, **changes}


def names(*lists: dict[str, Any]) -> list[tuple[str, dict[str, str]]]:
    parsed = collectd.parse(json.dumps(lists).encode(), now_ms=NOW_MS)
    return [parse_canonical(parsed.series.canonical(int(i))) for i in parsed.series_index]


@pytest.mark.parametrize(
    ("changes", "metric", "labels"),
    [
        ({}, "load", {"host": "h"}),
        ({"type": "gauge"}, "load_gauge", {"host": "h"}),
        ({"dsnames": ["shortterm"]}, "load_shortterm", {"host": "h"}),
        ({"plugin_instance": "0", "type_instance": "idle"}, "load", {"host": "h", "instance": "0", "type": "idle"}),
    ],
    ids=["plugin and type alike", "another type", "a named value", "instances"],
)
def test_a_list_of_collectd_is_named_after(changes: dict[str, Any], metric: str, labels: dict[str, str]) -> None:
    assert names(value_list(**changes)) == [(metric, labels)]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"values": [1, 2]}, "differ in length"),
        ({"time": -1}, "1970"),
        ({"time": 1e300}, ""),
        ({"time": (NOW_MS + FUTURE_MS + 1000) / 1000}, ""),
        ({"host": "x" * 3000}, "value is longer"),
        ({"values": ["1"]}, "float"),
        ({"plugin": "x" * 300}, "longer than"),
    ],
)
def test_a_list_of_collectd_is_rejected_alone_for(changes: dict[str, Any], reason: str) -> None:
    parsed = collectd.parse(json.dumps([value_list(**changes), value_list()]).encode(), now_ms=NOW_MS)
    assert (len(parsed.ts), parsed.rejected, parsed.rejections[0].line) == (1, 1, 1)
    assert reason in parsed.rejections[0].reason


def test_a_value_collectd_does_not_know_is_no_sample() -> None:
    assert names(value_list(values=[None])) == []


@pytest.mark.parametrize("body", [b"{}", b"[", b"", b"\xff", b"[[[[" * 10_000])
def test_a_body_that_is_not_collectd_is_rejected_completely(body: bytes) -> None:
    with pytest.raises(BadMessage, match="collectd"):
        collectd.parse(body, now_ms=NOW_MS)


@given(st.binary(max_size=200) | st.recursive(st.none() | st.floats() | st.text(), st.lists).map(json.dumps))
def test_no_body_breaks_the_reader_of_collectd(body: bytes | str) -> None:
    try:
        collectd.parse(body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body, now_ms=NOW_MS)
    except (BadMessage, LimitExceeded):
        return


def test_columns_keep_every_sample_and_bit() -> None:
    envelope = message(samples=4, values=[1.5, float("nan"), -0.0, float("inf")])
    parsed = protocols_columns.parse(envelope.to_bytes(), now_ms=NOW_MS)
    assert parsed.values.tobytes() == envelope.values.tobytes()
    assert (parsed.ts.tolist(), parsed.series_index.tolist()) == (envelope.ts.tolist(), envelope.series_index.tolist())


def test_ids_a_stranger_claims_are_not_believed() -> None:
    envelope = message(samples=2)
    lied = replace(envelope, series=replace(envelope.series, ids=envelope.series.ids[::-1].copy()))
    parsed = protocols_columns.parse(lied.to_bytes(), now_ms=NOW_MS)
    assert parsed.series.ids.tolist() == [series_id(envelope.series.canonical(i)) for i in range(2)]


def test_samples_of_bad_times_are_rejected_one_by_one() -> None:
    envelope = message(samples=3)
    parsed = protocols_columns.parse(
        replace(envelope, ts=np.array([-5, NOW_MS, NOW_MS + FUTURE_MS + 1])).to_bytes(), now_ms=NOW_MS
    )
    assert (parsed.ts.tolist(), parsed.rejected, len(parsed.rejections)) == ([NOW_MS], 2, 2)


@pytest.mark.parametrize(
    "form",
    [canonical("m", {"b": ""}), canonical("", {}), b"\0\1m\0\1b\0\1x\0\1a\0\1x", b"\0\1m\0", b"\0\1\xff", b""],
    ids=["an empty value", "no metric", "unsorted names", "cut off", "no text", "nothing"],
)
def test_columns_with_a_series_that_is_not_valid_are_rejected(form: bytes) -> None:
    envelope = replace(message(samples=1), series=SeriesTable.from_canonical([form]))
    with pytest.raises(BadMessage):
        protocols_columns.parse(envelope.to_bytes(), now_ms=NOW_MS)


def test_a_damaged_envelope_is_rejected() -> None:
    raw = bytearray(message().to_bytes())
    raw[-3] ^= 1
    with pytest.raises(BadMessage, match="checksum"):
        protocols_columns.parse(bytes(raw), now_ms=NOW_MS)
