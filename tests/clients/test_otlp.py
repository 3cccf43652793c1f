"""The OpenTelemetry SDK of Python with its own exporter over HTTP: queries return its 10,000 points."""

import pytest

from tests.clients.support.known import Known, assert_same, wait_for
from tests.clients.support.otlp import Noting, observe, provider, without_resource
from tests.servers.product import Served

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(600)]
SAMPLES = 10_000


def test_the_opentelemetry_sdk_delivers_every_point(served: Served) -> None:
    known, step, exporter = Known.make("otlp"), [0], Noting(served, timeout_s=60)
    meters = provider(exporter)
    observe(meters, known, step)
    for number in range(known.steps):
        step[0] = number
        assert meters.force_flush(60_000)
    stored = {without_resource(labels): column for labels, column in wait_for(served, "otlp", SAMPLES).items()}
    assert assert_same(stored, exporter.points()) == SAMPLES
    values = [v for column in exporter.points().values() for v in column.values()]
    assert sorted(values) == sorted(known.values.ravel().tolist())
    meters.shutdown()
