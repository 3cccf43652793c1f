"""The place of each sample in its body, for rejections after parsing. The values of a body are its items' numbers."""

import json
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.accept.admission import Admission
from ingest.protocols import columns as protocols_columns
from ingest.protocols.common.series_cache import SeriesCache
from ingest.protocols.influx import reader as influx_reader
from ingest.protocols.json import collectd
from ingest.protocols.json import samples as json_samples
from ingest.protocols.otlp import reader as otlp_reader
from ingest.protocols.prometheus import remote_write
from ingest.protocols.prometheus import text as prometheus_text
from spm.accounts.quotas import Quota
from spm.clock import FakeClock
from spm.store.backends.memory import MemoryBackend
from spm.wire import Envelope, Parsed, SeriesTable, Stamp, canonical
from tests.ingest.protocols import otlp_bodies, remote_bodies
from tests.ingest.protocols.otlp_bodies import Metric, Point

NOW_MS = 1_767_225_600_000
PLAIN, SEVERAL, OTHER, BAD, NOTHING = KINDS = range(5)
_ESCAPED = "value, written with an escape"  # as no kernel reads it
Read = Callable[[Sequence[int], SeriesCache], Parsed]


def lines(kinds: Sequence[int], cache: SeriesCache) -> Parsed:
    forms = ("m,h=a v={0} 5000000", "m,h=a v={0},w={0}", "m\\ n,h=b v={0}", "m,h=a v={0},w=bad", "# no\n")
    text = "".join(f"{forms[kind].format(n)}\n".replace("\n\n", "\n") for n, kind in enumerate(kinds, 1))
    return influx_reader.parse(text.encode(), now_ms=NOW_MS, cache=cache)


def text(kinds: Sequence[int], cache: SeriesCache) -> Parsed:
    forms = ('m{{h="a"}} {0}', 'm{{h="b"}} {0} 5000', '{{"m n",h="c"}} {0}', 'm{{h="a"}} bad', "")
    body = "\n".join(forms[kind].format(n) for n, kind in enumerate(kinds, 1))
    return prometheus_text.parse(body.encode(), now_ms=NOW_MS, cache=cache)


def _sample(kind: int, number: int) -> object:
    named = {"metric": "m", "tags": {"h": "a"}, "time": 5_000}
    plain, odd = {**named, "value": number}, {**named, _ESCAPED: number}
    others = {SEVERAL: {"metric": "m", "value": number}, OTHER: odd, BAD: {**plain, "value": "x"}}
    return 7 if kind == NOTHING else others.get(kind, plain)


def _columns(kind: int, number: int) -> object:
    plain = {"metric": "m", "tags": {"h": "a"}, "times": [5_000], "values": [number]}
    several = {**plain, "times": [5_000, 6_000, 7_000], "values": [number] * 3}
    others = {SEVERAL: several, OTHER: {**several, "times": [5_000, 0, 7_000]}, BAD: {**plain, "values": []}}
    return 7 if kind == NOTHING else others.get(kind, plain)


def json_of(*lists: str) -> Read:
    def read(kinds: Sequence[int], cache: SeriesCache) -> Parsed:
        items = {"samples": _sample, "series": _columns}
        body = {name: [items[name](kind, n) for n, kind in enumerate(kinds, 1)] for name in lists}
        text = json.dumps(body).replace(_ESCAPED, "\\u0076alue")
        return json_samples.parse(text.encode(), now_ms=NOW_MS, cache=cache)

    return read


def value_lists(kinds: Sequence[int], cache: SeriesCache) -> Parsed:
    names = {"time": 5.0, "host": "h", "plugin": "p", "plugin_instance": "", "type": "t", "type_instance": ""}
    names_by_kind = {SEVERAL: ["a", "b"], OTHER: ["a", "b", "c"], NOTHING: []}
    body = []
    for n, kind in enumerate(kinds, 1):
        dsnames = names_by_kind.get(kind, ["value"])
        values = [None if kind == OTHER and name == "b" else n for name in dsnames]
        body.append({"values": [*values, 1] if kind == BAD else values, "dsnames": dsnames, **names})
    return collectd.parse(json.dumps(body).encode(), now_ms=NOW_MS, cache=cache)


def _written(kinds: Sequence[int]) -> list[remote_bodies.Series]:
    labels = [("__name__", "m"), ("h", "a")]
    forms: dict[int, Callable[[int], remote_bodies.Series]] = {
        PLAIN: lambda n: remote_bodies.Series(labels, [(5_000, n)]),
        SEVERAL: lambda n: remote_bodies.Series(labels[:1], [(5_000, n), (6_000, n)]),
        OTHER: lambda n: remote_bodies.Series(labels, [(5_000, n), (-1, n), (7_000, n)]),
        BAD: lambda n: remote_bodies.Series([], [(5_000, n)]),
        NOTHING: lambda n: remote_bodies.Series(labels),
    }
    return [forms[kind](n) for n, kind in enumerate(kinds, 1)]


def written(kinds: Sequence[int], cache: SeriesCache) -> Parsed:
    return remote_write.parse(remote_bodies.request(_written(kinds)), now_ms=NOW_MS, cache=cache)


def written_v2(kinds: Sequence[int], cache: SeriesCache) -> Parsed:
    return remote_write.parse_v2(remote_bodies.request_v2(_written(kinds)), now_ms=NOW_MS, cache=cache)


def points(kinds: Sequence[int], cache: SeriesCache) -> Parsed:
    forms: dict[int, Callable[[int], Metric]] = {
        PLAIN: lambda n: Metric("m", "gauge", [Point(n)]),
        SEVERAL: lambda n: Metric("h", "summary", [Point(total=n, count=n, quantiles=[(0.5, n)])]),
        OTHER: lambda n: Metric("s", "sum", [Point(n)], monotonic=True),
        BAD: lambda n: Metric("m", "gauge", [Point(n, at_ms=NOW_MS + 10**9)]),
        NOTHING: lambda n: Metric("", "gauge", [Point(n)]),
    }
    body = otlp_bodies.request(*(forms[kind](n) for n, kind in enumerate(kinds, 1)))
    return otlp_reader.parse(body, "application/x-protobuf", now_ms=NOW_MS, cache=cache)


def columns(kinds: Sequence[int], cache: SeriesCache) -> Parsed:
    table = SeriesTable.from_canonical([canonical("m", {"h": "a"})])
    ts = np.array([-1 if kind == BAD else 5_000 for kind in kinds], np.int64)
    values = np.arange(1, len(kinds) + 1, dtype=np.float64)
    sent = Envelope(1, "s", Stamp(1, 1, 1), bytes(16), table, np.zeros(len(kinds), np.int32), ts, values)
    return protocols_columns.parse(sent.to_bytes(), now_ms=NOW_MS)


READERS: dict[str, Read] = {
    "line protocol": lines,
    "Prometheus text": text,
    "JSON samples": json_of("samples"),
    "JSON columns": json_of("series"),
    "JSON of both": json_of("samples", "series"),
    "collectd": value_lists,
    "remote write 1.0": written,
    "remote write 2.0": written_v2,
    "OTLP": points,
    "envelope": columns,
}


@pytest.mark.parametrize("name", READERS)
@settings(deadline=None, max_examples=30)
@given(kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=12), some=st.sets(st.integers(0, 30)))
def test_samples_are_found_at_their_lines_or_items(name: str, kinds: list[int], some: set[int]) -> None:
    cache = SeriesCache()
    for _ in range(2):  # by the exact readers, and then by the kernels
        parsed = READERS[name]([PLAIN, *kinds], cache)
        assert parsed.places is not None
        rows = [row for row in sorted(some) if row < len(parsed.ts)]
        assert parsed.places(rows) == parsed.values[rows].astype(int).tolist()


def test_a_body_of_many_odd_items_is_found_again_without_the_kernel() -> None:
    parsed = json_of("samples")([OTHER] * 500 + [BAD, PLAIN], SeriesCache())
    assert parsed.places is not None
    assert parsed.places([0, 250, 500]) == [1, 251, 502]


def guarded(parsed: Parsed, **allowed: int) -> list[tuple[int, str]]:
    admission = Admission(MemoryBackend(), FakeClock(NOW_MS), lambda app: Quota(**allowed))
    return [(one.line, one.example) for one in admission.admit(7, parsed).rejections]


def test_rejections_by_quota_and_by_age_each_name_their_line() -> None:
    body = b"m,h=a v=1 %d\nm,h=b v=2 5000000\n\nm,h=c v=3 %d\nm,h=a v=4 %d\nm,h=c v=5,w=6" % ((NOW_MS * 10**6,) * 3)
    parsed = influx_reader.parse(body, now_ms=NOW_MS, cache=SeriesCache())
    assert guarded(parsed, series=1, kept_days=30) == [
        (2, 'm_v{h="b"} at 5 ms'),
        (4, 'm_v{h="c"}'),
        (6, 'm_w{h="c"}'),
    ]


def test_as_many_rejections_as_are_reported_are_found_in_a_body_of_new_series() -> None:
    body = "".join(f"m,n={n} v=1\n\n" for n in range(3_000))
    parsed = influx_reader.parse(body.encode(), now_ms=NOW_MS, over_quota=True)
    assert [line for line, _ in guarded(parsed, series=0)] == list(range(1, 200, 2))
