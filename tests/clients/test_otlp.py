"""The OpenTelemetry SDK of Python with its own exporters over HTTP and gRPC: queries return its 10,000 points.

Exemplars are those that the SDK takes by itself: of a value that is recorded within a sampled span.
"""

import time
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from tests.clients.support.known import Known, assert_same, wait_for
from tests.clients.support.otlp import Noting, NotingGrpc, observe, provider, without_resource
from tests.servers.processes import wait_until
from tests.servers.product import Served

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(600)]
SAMPLES = 10_000
EXPORTING = [("otlp", Noting), ("grpc", NotingGrpc)]


@pytest.mark.parametrize(("name", "exporting"), EXPORTING, ids=["HTTP", "gRPC"])
def test_the_opentelemetry_sdk_delivers_every_point(
    name: str, exporting: type[Noting | NotingGrpc], served: Served
) -> None:
    known, step, exporter = Known.make(name), [0], exporting(served, timeout_s=60)
    meters = provider(exporter)
    observe(meters, known, step)
    for number in range(known.steps):
        step[0] = number
        assert meters.force_flush(60_000)
    stored = {without_resource(labels): column for labels, column in wait_for(served, name, SAMPLES).items()}
    assert assert_same(stored, exporter.points()) == SAMPLES
    values = [v for column in exporter.points().values() for v in column.values()]
    assert sorted(values) == sorted(known.values.ravel().tolist())
    meters.shutdown()


@pytest.mark.parametrize(("name", "exporting"), EXPORTING, ids=["HTTP", "gRPC"])
def test_exemplars_of_the_opentelemetry_sdk_are_here_with_their_spans(
    name: str, exporting: type[Noting | NotingGrpc], served: Served
) -> None:
    meters = provider(exporting(served, timeout_s=60))
    taken = meters.get_meter("tests").create_histogram(f"spanned_{name}", explicit_bucket_boundaries_advisory=[1.0])
    tracer, spans = TracerProvider().get_tracer("tests"), set()
    for value in (0.25, 2.5):
        with tracer.start_as_current_span("order") as span:
            taken.record(value, {"shop": "a"})
            spans.add((value, f"{span.get_span_context().trace_id:032x}", f"{span.get_span_context().span_id:016x}"))
    assert meters.force_flush(60_000)
    connection, now_s = served.connection(), time.time()

    def shown() -> set[tuple[float, str, str]]:
        """What the product answers with: value, trace and span."""
        query = {"query": f"spanned_{name}_bucket", "start": now_s - 600, "end": now_s + 600}
        series: Any = served.ask(connection, "query_exemplars", **query)
        return {
            (float(each["value"]), each["labels"]["trace_id"], each["labels"]["span_id"])
            for one in series
            for each in one["exemplars"]
        }

    assert wait_until(lambda: shown() == spans, 60), shown()
    meters.shutdown()
