"""The OpenTelemetry SDK of Python with its own exporters over HTTP and gRPC: queries return its 10,000 points."""

import pytest

from tests.clients.support.known import Known, assert_same, wait_for
from tests.clients.support.otlp import Noting, NotingGrpc, observe, provider, without_resource
from tests.servers.product import Served

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(600)]
SAMPLES = 10_000


@pytest.mark.parametrize(("name", "exporting"), [("otlp", Noting), ("grpc", NotingGrpc)], ids=["HTTP", "gRPC"])
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
