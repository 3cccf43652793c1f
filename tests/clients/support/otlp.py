"""The OpenTelemetry SDK of Python with its own exporters, which record what the server has accepted.

``Noting`` is the exporter over HTTP, ``NotingGrpc`` that over gRPC, ``provider`` a MeterProvider that exports on
request. ``observe`` adds gauges of known values, and ``without_resource`` removes the labels of the resource from the
results of queries.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import grpc
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    MetricExporter,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.resources import Resource

from tests.clients.support.known import Known, Labels, Samples, labels_of
from tests.servers.product import Served


class _Notes(MetricExporter):
    """Records the exported and the accepted points of an exporter of the SDK."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.given: list[MetricsData] = []
        self.taken: list[MetricsData] = []

    def export(
        self, metrics_data: MetricsData, timeout_millis: float | None = 10_000, **options: object
    ) -> MetricExportResult:
        """Export as the SDK does."""
        self.given.append(metrics_data)
        result = super().export(metrics_data, timeout_millis, **options)  # type: ignore[arg-type, safe-super]
        if result is MetricExportResult.SUCCESS:
            self.taken.append(metrics_data)
        return result

    def points(self, of: list[MetricsData] | None = None) -> Samples:
        """Returns the points of all accepted gauges, or of other exports."""
        samples: Samples = {}
        for data in self.taken if of is None else of:
            for metric in (m for r in data.resource_metrics for s in r.scope_metrics for m in s.metrics):
                for point in metric.data.data_points:
                    assert isinstance(point, NumberDataPoint), "BUG: only gauges are exported here"
                    labels = {"__name__": metric.name, **{k: str(v) for k, v in (point.attributes or {}).items()}}
                    samples.setdefault(labels_of(labels), {})[point.time_unix_nano // 1_000_000] = point.value
        return samples


class Noting(_Notes, OTLPMetricExporter):
    """The exporter over HTTP."""

    def __init__(self, served: Served, timeout_s: float = 30) -> None:
        super().__init__(
            endpoint=f"http://127.0.0.1:{served.port}/v1/metrics",
            headers={"Authorization": f"Bearer {served.token}"},
            compression=Compression.Gzip,
            timeout=timeout_s,
        )


class NotingGrpc(_Notes, GrpcExporter):
    """The exporter over gRPC."""

    def __init__(self, served: Served, timeout_s: float = 30) -> None:
        super().__init__(
            endpoint=f"http://127.0.0.1:{served.grpc_port}",
            headers={"authorization": f"Bearer {served.token}"},
            compression=grpc.Compression.Gzip,
            timeout=timeout_s,
        )


def provider(exporter: MetricExporter) -> MeterProvider:
    """A reader that exports on request."""
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=math.inf)
    return MeterProvider([reader], resource=Resource({"service.name": "shop", "service.instance.id": "one"}))


def observe(meters: MeterProvider, known: Known, step: list[int]) -> None:
    """A gauge for each field: it shows the values of step ``step[0]``."""

    def observing(field: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
        return lambda options: [Observation(f[field], {"host": host}) for host, _, f in known.reports(step[0])]

    for number in range(known.values.shape[2]):
        name = f"{known.name}_f{number}"
        meters.get_meter("tests").create_observable_gauge(name, [observing(f"f{number}")])


def without_resource(labels: Labels) -> Labels:
    """Returns the labels without those of resource and scope, which must exist."""
    own = dict(labels)
    assert (own.pop("job"), own.pop("instance"), own.pop("otel_scope_name")) == ("shop", "one", "tests")
    return labels_of(own)
