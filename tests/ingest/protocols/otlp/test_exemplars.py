"""Exemplars of OTLP's points, in both forms: to which series they belong, and what is left out."""

import json

import pytest

from ingest.exemplars.limits import EXEMPLAR_LABEL_CHARS_MAX
from ingest.protocols.common import exemplars as common
from ingest.protocols.common.series_cache import SeriesCache
from ingest.protocols.otlp import exemplars as otlp_exemplars
from ingest.protocols.otlp import reader as otlp_reader
from ingest.protocols.otlp.answers import message_of
from spm.limits import FUTURE_MS
from spm.wire import Parsed
from tests.ingest.protocols.otlp_bodies import NOW, Metric, Point, Shown, request, request_json
from tests.ingest.protocols.prometheus.test_exemplars import shown

TRACE, SPAN = "ab" * 16, "cd" * 8
IDS = {"trace_id": TRACE, "span_id": SPAN}
SEEN = Shown(0.75, TRACE, SPAN, at_ms=NOW - 5)
BOUNDS = Point(count=6, total=10.5, counts=[1, 2, 3], bounds=[1.0, 2.5], exemplars=[SEEN, Shown(1.0), Shown(99, TRACE)])
FORMS = pytest.mark.parametrize("form", ["protobuf", "json"])


def read(form: str, *metrics: Metric, cache: SeriesCache | None = None) -> Parsed:
    """Read a request whose resource has a series of its own, too."""
    resource = {"service.name": "shop", "os": "linux"}
    if form == "json":
        body, kind = json.dumps(request_json(*metrics, resource=resource)).encode(), "application/json"
    else:
        body, kind = request(*metrics, resource=resource), "application/x-protobuf"
    return otlp_reader.parse(body, kind, now_ms=NOW, cache=cache or SeriesCache())


@FORMS
@pytest.mark.parametrize("kind", ["gauge", "sum"])
def test_the_exemplar_of_a_number_belongs_to_its_series(form: str, kind: str) -> None:
    points = [Point(1, labels={"k": "a"}), Point(2.5, labels={"k": "b"}, exemplars=[SEEN, Shown(7, TRACE)])]
    cache, labels = SeriesCache(), {"job": "shop", "k": "b"}
    for _ in range(2):
        parsed = read(form, Metric("g", kind, points), cache=cache)
        assert shown(parsed) == [("g", labels, NOW - 5, 0.75, IDS), ("g", labels, NOW, 7.0, {"trace_id": TRACE})]
        assert (len(parsed.ts), parsed.rejections) == (3, ())


@FORMS
def test_the_exemplar_of_a_histogram_belongs_to_the_bucket_it_fell_into(form: str) -> None:
    parsed = read(form, Metric("g", "gauge", [Point(1)]), Metric("h", "histogram", [Point(), BOUNDS]))
    names = [(metric, labels["le"], value, own) for metric, labels, _, value, own in shown(parsed)]
    assert names == [
        ("h_bucket", "1", 0.75, IDS),
        ("h_bucket", "1", 1.0, {}),
        ("h_bucket", "+Inf", 99.0, {"trace_id": TRACE}),
    ]


@FORMS
def test_the_exemplar_of_an_exponential_histogram_belongs_to_the_bucket_that_was_made_of_it(form: str) -> None:
    point = Point(count=7, total=9.5, scale=0, zero=1, positive=(0, [1, 2, 3]), exemplars=[Shown(3.5, TRACE)])
    [(metric, labels, *_)] = shown(read(form, Metric("e", "exponentialHistogram", [point])))
    assert (metric, labels["le"]) == ("e_bucket", "4")


def test_attributes_that_fit_are_labels_and_others_are_left_out() -> None:
    fitting, long = {"user.id": "u"}, {"user.id": "u" * EXEMPLAR_LABEL_CHARS_MAX}
    points = [Point(1, exemplars=[Shown(1.0, TRACE, labels=own) for own in (fitting, long)])]
    own = [labels for *_, labels in shown(read("protobuf", Metric("g", "gauge", points)))]
    assert own == [{"trace_id": TRACE, "user_id": "u"}, {"trace_id": TRACE}]


@FORMS
def test_an_exemplar_without_time_is_counted_and_its_point_kept(form: str) -> None:
    parsed = read(form, Metric("g", "gauge", [Point(1, exemplars=[Shown(1.0, at_ms=0), SEEN])]))
    assert (len(parsed.ts), parsed.rejected, len(parsed.exemplars)) == (2, 0, 1)
    assert common.NO_TIME in message_of(parsed.rejections)


def test_exemplars_of_a_rejected_point_are_counted() -> None:
    point = Point(1, at_ms=NOW + FUTURE_MS + 1, exemplars=[SEEN])
    parsed = read("protobuf", Metric("g", "gauge", [point]))
    assert parsed.exemplars == ()
    assert any(otlp_exemplars.POINT_REJECTED in one.reason for one in parsed.rejections)


@pytest.mark.parametrize("damaged", ["x", {"traceId": "no hex"}, {"timeUnixNano": []}, 5, {"asDouble": "a"}])
def test_a_damaged_exemplar_of_json_costs_itself_alone(damaged: object) -> None:
    body = request_json(Metric("g", "gauge", [Point(1, exemplars=[SEEN])]))
    [metric] = body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]
    metric["gauge"]["dataPoints"][0]["exemplars"].insert(0, damaged)
    parsed = otlp_reader.parse(json.dumps(body).encode(), "application/json", now_ms=NOW, cache=SeriesCache())
    assert (len(parsed.ts), len(parsed.exemplars), parsed.rejected) == (1, 1, 0)
    assert "exemplars left out (1)" in message_of(parsed.rejections)
