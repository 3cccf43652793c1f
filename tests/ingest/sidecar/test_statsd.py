"""StatsD and DogStatsD become the metrics that Prometheus would have scraped, collection by collection."""

import os
import random

import pytest

from ingest.agent.lines import Point
from ingest.sidecar.intake import Intake, UnreadableLine
from ingest.sidecar.statsd import Statsd, StatsdMetric, read
from spm import limits

NOW_MS = 1_700_000_000_000
Sent = dict[tuple[str, tuple[tuple[str, str], ...], str], float]


def sent(statsd: Statsd, now_ms: int = NOW_MS) -> Sent:
    points = statsd.points(now_ms)
    return {(p.measurement, tuple(sorted(p.labels.items())), name): v for p in points for name, v in p.fields.items()}


def after(*lines: str) -> Sent:
    statsd = Statsd()
    for line in lines:
        assert statsd.add(line, NOW_MS)
    return sent(statsd)


@pytest.mark.parametrize(
    ("line", "reading"),
    [
        pytest.param("a:1|c", StatsdMetric("c", "a", (), ("1",), 1.0), id="a counter"),
        pytest.param("a:1|c|@0.1", StatsdMetric("c", "a", (), ("1",), 10.0), id="a sampled counter"),
        pytest.param("a:1|m", StatsdMetric("c", "a", (), ("1",), 1.0), id="a meter"),
        pytest.param("a.b:+2|g", StatsdMetric("g", "a.b", (), ("+2",), 1.0), id="a gauge's change"),
        pytest.param("a:1:2:3|ms", StatsdMetric("ms", "a", (), ("1", "2", "3"), 1.0), id="several values"),
        pytest.param("a:x:y|s", StatsdMetric("s", "a", (), ("x:y",), 1.0), id="a member with a colon"),
        pytest.param(
            "a:1|d|#b:c,d,e:f:g",
            StatsdMetric("d", "a", (("b", "c"), ("d", "true"), ("e", "f:g")), ("1",), 1.0),
            id="DogStatsD's tags",
        ),
        pytest.param(
            "a:1|c|@0.5|#b:c|c:ci-1|T1", StatsdMetric("c", "a", (("b", "c"),), ("1",), 2.0), id="all sections"
        ),
        pytest.param(
            "a,b=c,d=e:1|c", StatsdMetric("c", "a", (("b", "c"), ("d", "e")), ("1",), 1.0), id="Influx's tags"
        ),
        pytest.param("a;b=c:1|c", StatsdMetric("c", "a", (("b", "c"),), ("1",), 1.0), id="Graphite's tags"),
    ],
)
def test_line_is_read(line: str, reading: StatsdMetric) -> None:
    assert read(line) == reading


@pytest.mark.parametrize(
    "line",
    [
        "",
        "a",
        "a:1",
        "a:|c",
        ":1|c",
        "a:1|x",
        "a:1|c|@0",
        "a:1|c|@2",
        "a:1|c|@x",
        "a:1|c|#:x",
        "_e{1,1}:a|b",
        "_sc|a|0",
        ",b=c:1|c",
        "a|c",
    ],
)
def test_line_of_another_form_is_rejected(line: str) -> None:
    with pytest.raises(UnreadableLine):
        read(line)


@pytest.mark.parametrize("line", ["a:x|c", "a:nan|g", "a:1e999|ms", "a:1_0|c", "a:1:x|ms"])
def test_value_that_is_no_number_rejects_its_line_completely(line: str) -> None:
    statsd = Statsd()
    with pytest.raises(UnreadableLine):
        statsd.add(line, NOW_MS)
    assert sent(statsd) == {}


def test_counters_grow_from_collection_to_collection() -> None:
    statsd = Statsd()
    for line in ("a:1|c", "a:2|c", "a:1|c|@0.5", "a:1|c|#b:c"):
        statsd.add(line, NOW_MS)
    assert sent(statsd) == {("a", (), "value"): 5.0, ("a", (("b", "c"),), "value"): 1.0}
    statsd.add("a:1|c", NOW_MS)
    assert sent(statsd)["a", (), "value"] == 6.0


def test_gauges_keep_their_level_and_change_by_signs() -> None:
    assert after("g:10|g", "g:+5|g", "g:-1|g")["g", (), "value"] == 14.0
    statsd = Statsd()
    statsd.add("g:-1|g", NOW_MS)  # as in StatsD itself: from 0
    assert sent(statsd)["g", (), "value"] == -1.0
    assert sent(statsd)["g", (), "value"] == -1.0


@pytest.mark.parametrize("kind", ["ms", "h", "d"])
def test_timers_are_counted_summed_and_ranked(kind: str) -> None:
    points = after(*(f"t:{n}|{kind}" for n in range(1, 101)))
    assert (points["t", (), "count"], points["t", (), "sum"]) == (100.0, 5050.0)
    assert (points["t", (), "min"], points["t", (), "max"]) == (1.0, 100.0)
    assert [points["t", (("quantile", q),), "value"] for q in ("0.5", "0.9", "0.99")] == [50.0, 90.0, 99.0]


def test_sampled_timers_count_what_was_left_out() -> None:
    points = after("t:10|ms|@0.1")
    assert (points["t", (), "count"], points["t", (), "sum"], points["t", (), "max"]) == (10.0, 100.0, 10.0)


def test_a_timer_without_values_sends_its_sums_only() -> None:
    statsd = Statsd()
    statsd.add("t:10|ms", NOW_MS)
    sent(statsd)
    assert sent(statsd) == {("t", (), "count"): 1.0, ("t", (), "sum"): 10.0}


def test_sets_count_members_of_one_collection() -> None:
    statsd = Statsd()
    for member in "aab":
        statsd.add(f"s:{member}|s", NOW_MS)
    assert sent(statsd) == {("s", (), "value"): 2.0}
    assert sent(statsd) == {}


def test_series_without_lines_for_long_are_removed() -> None:
    statsd = Statsd()
    statsd.add("a:1|c", NOW_MS)
    assert sent(statsd, NOW_MS + limits.STATSD_IDLE_S * 1_000) != {}
    assert sent(statsd, NOW_MS + limits.STATSD_IDLE_S * 1_000 + 1) == {}


def test_series_are_limited_and_existing_ones_continue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STATSD_SERIES_MAX", 2)
    intake = Intake("statsd", Statsd())
    intake.add(b"a:1|c\nb:1|c\nc:1|c\na:1|c", NOW_MS)
    points = {p.measurement: p.fields for p in intake.collect(NOW_MS)}
    assert (points["a"]["value"], "c" in points, points["spm_sidecar"]["dropped"]) == (2.0, False, 1)


def test_values_for_quantiles_are_limited_and_sums_stay_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STATSD_VALUES_MAX", 2)
    points = after("t:1|ms", "t:2|ms", "t:300|ms")
    assert (points["t", (), "sum"], points["t", (), "max"], points["t", (("quantile", "0.99"),), "value"]) == (
        303,
        300,
        2,
    )


def bears_mutations(count: int) -> None:
    draw, statsd = random.Random(count), Statsd()
    intake = Intake("statsd", statsd)
    for number in range(count):
        line = bytearray(b"web.hits:1:2.5|ms|@0.25|#env:prod,host:a\nusers:ann|s\n")
        for _ in range(draw.randrange(1, 6)):
            at = draw.randrange(len(line) + 1)
            line[at : at + draw.randrange(3)] = draw.choice((draw.randbytes(2), b"|", b":", b"#", b"\n", b"g", b"+"))
        intake.add(bytes(line), NOW_MS + number)
    assert all(isinstance(point, Point) for point in intake.collect(NOW_MS))


def test_mutated_lines_are_read_or_rejected_and_nothing_else() -> None:
    bears_mutations(10_000)


@pytest.mark.proof
def test_proof_mutated_lines_are_read_or_rejected_at_length() -> None:
    bears_mutations(int(os.environ.get("SPM_MUTATIONS", "1000000")))
