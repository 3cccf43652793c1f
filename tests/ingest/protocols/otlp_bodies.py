"""OTLP's requests by an independent encoder: as protobuf and as JSON."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.ingest.protocols.remote_bodies import bits, part, real, varint, whole

NOW = 1_767_225_600_000
NS = 1_000_000
Labels = Mapping[str, str]


def attributes(number: int, pairs: Labels) -> bytes:
    """Attributes, all of them texts."""
    return b"".join(part(number, part(1, name) + part(2, part(1, value))) for name, value in pairs.items())


def zigzag(number: int, value: int) -> bytes:
    """A sint32."""
    return whole(number, 2 * value if value >= 0 else -2 * value - 1)


def packed(number: int, values: Sequence[int]) -> bytes:
    """Fixed 64-bit numbers, packed."""
    return part(number, struct.pack(f"<{len(values)}Q", *values))


@dataclass
class Shown:
    """An exemplar; without a time it is none."""

    value: float | int | None = None
    trace: str = ""
    span: str = ""
    at_ms: int = NOW
    labels: Labels = field(default_factory=dict)

    def protobuf(self) -> bytes:
        """The message."""
        value = bits(6, self.value) if isinstance(self.value, int) else real(3, self.value or 0.0)
        ids = part(4, bytes.fromhex(self.span)) + part(5, bytes.fromhex(self.trace))
        return bits(2, self.at_ms * NS) + value + ids + attributes(7, self.labels)

    def json(self) -> dict[str, Any]:
        """Returns the message as JSON."""
        name, value = ("asInt", str(self.value)) if isinstance(self.value, int) else ("asDouble", self.value)
        ids = {"traceId": self.trace, "spanId": self.span}
        own = {"filteredAttributes": _attributes_json(self.labels)}
        return {"timeUnixNano": str(self.at_ms * NS), name: value} | ids | own


@dataclass
class Point:
    """A data point of any kind; which of its fields count depends on the metric."""

    value: float | int | None = None
    at_ms: int = NOW
    labels: Labels = field(default_factory=dict)
    flags: int = 0
    exemplars: Sequence[Shown] = ()
    count: int = 0
    total: float | None = None
    counts: Sequence[int] = ()
    bounds: Sequence[float] = ()
    least: float | None = None
    most: float | None = None
    scale: int = 0
    zero: int = 0
    positive: tuple[int, Sequence[int]] = (0, ())
    negative: tuple[int, Sequence[int]] = (0, ())
    quantiles: Sequence[tuple[float, float]] = ()

    def number(self) -> bytes:
        """A NumberDataPoint."""
        value = b""
        if isinstance(self.value, int):
            value = bits(6, self.value)
        elif self.value is not None:
            value = real(4, self.value)
        return (
            bits(2, 1)
            + bits(3, self.at_ms * NS)
            + value
            + self._shown(5)
            + attributes(7, self.labels)
            + whole(8, self.flags)
        )

    def _shown(self, number: int) -> bytes:
        return b"".join(part(number, one.protobuf()) for one in self.exemplars)

    def _head(self) -> bytes:
        total = real(5, self.total) if self.total is not None else b""
        return bits(3, self.at_ms * NS) + bits(4, self.count) + total

    def _ends(self, least: int, most: int) -> bytes:
        return (real(least, self.least) if self.least is not None else b"") + (
            real(most, self.most) if self.most is not None else b""
        )

    def classic(self) -> bytes:
        """A HistogramDataPoint."""
        bounds = part(7, struct.pack(f"<{len(self.bounds)}d", *self.bounds))
        return (
            self._head()
            + packed(6, self.counts)
            + bounds
            + self._shown(8)
            + attributes(9, self.labels)
            + whole(10, self.flags)
            + self._ends(11, 12)
        )

    def exponential(self) -> bytes:
        """An ExponentialHistogramDataPoint."""
        sides = b"".join(
            part(number, zigzag(1, offset) + part(2, b"".join(map(varint, counts))))
            for number, (offset, counts) in ((8, self.positive), (9, self.negative))
        )
        return (
            attributes(1, self.labels)
            + self._head()
            + zigzag(6, self.scale)
            + bits(7, self.zero)
            + sides
            + whole(10, self.flags)
            + self._shown(11)
            + self._ends(12, 13)
        )

    def summary(self) -> bytes:
        """A SummaryDataPoint."""
        quantiles = b"".join(part(6, real(1, quantile) + real(2, value)) for quantile, value in self.quantiles)
        return self._head() + quantiles + attributes(7, self.labels) + whole(8, self.flags)


_KINDS = {"gauge": 5, "sum": 7, "histogram": 9, "exponentialHistogram": 10, "summary": 11}


@dataclass
class Metric:
    """A metric: temporality 1 is delta, 2 cumulative."""

    name: str
    kind: str
    points: Sequence[Point]
    unit: str = ""
    help: str = ""
    temporality: int = 2
    monotonic: bool = False

    def protobuf(self) -> bytes:
        """The message."""
        write = {"histogram": Point.classic, "exponentialHistogram": Point.exponential, "summary": Point.summary}
        points = b"".join(part(1, write.get(self.kind, Point.number)(point)) for point in self.points)
        end = b"" if self.kind in ("gauge", "summary") else whole(2, self.temporality)
        end += whole(3, 1) if self.monotonic else b""
        return part(1, self.name) + part(2, self.help) + part(3, self.unit) + part(_KINDS[self.kind], points + end)

    def json(self) -> dict[str, Any]:
        """Returns the message as JSON."""
        data: dict[str, Any] = {"dataPoints": [_point_json(self.kind, point) for point in self.points]}
        if self.kind not in ("gauge", "summary"):
            data |= {"aggregationTemporality": self.temporality, "isMonotonic": self.monotonic}
        return {"name": self.name, "description": self.help, "unit": self.unit, self.kind: data}


def _attributes_json(pairs: Labels) -> list[dict[str, Any]]:
    return [{"key": name, "value": {"stringValue": value}} for name, value in pairs.items()]


def _point_json(kind: str, point: Point) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "timeUnixNano": str(point.at_ms * NS),
        "attributes": _attributes_json(point.labels),
        "flags": point.flags,
    }
    if kind in ("gauge", "sum"):
        name, value = ("asInt", str(point.value)) if isinstance(point.value, int) else ("asDouble", point.value)
        return fields | {name: value, "exemplars": [one.json() for one in point.exemplars]}
    fields["exemplars"] = [one.json() for one in point.exemplars]
    fields |= {"count": str(point.count), "sum": point.total, "min": point.least, "max": point.most}
    if kind == "histogram":
        fields |= {"bucketCounts": [str(n) for n in point.counts], "explicitBounds": list(point.bounds)}
    elif kind == "summary":
        fields |= {"quantileValues": [{"quantile": q, "value": v} for q, v in point.quantiles]}
    else:
        fields |= {"scale": point.scale, "zeroCount": str(point.zero)}
        for name, (offset, counts) in (("positive", point.positive), ("negative", point.negative)):
            fields[name] = {"offset": offset, "bucketCounts": [str(n) for n in counts]}
    return fields


def request(*metrics: Metric, resource: Labels | None = None, scope: Labels | None = None) -> bytes:
    """A request of one resource and one scope, as protobuf."""
    named = scope or {}
    inner = part(1, part(1, named.get("name", "")) + part(2, named.get("version", "")))
    inner += b"".join(part(2, metric.protobuf()) for metric in metrics)
    return part(1, part(1, attributes(1, resource or {})) + part(2, inner))


def request_json(*metrics: Metric, resource: Labels | None = None, scope: Labels | None = None) -> dict[str, Any]:
    """Returns the request as JSON."""
    inner = {"scope": dict(scope or {}), "metrics": [metric.json() for metric in metrics]}
    resources = {"resource": {"attributes": _attributes_json(resource or {})}, "scopeMetrics": [inner]}
    return {"resourceMetrics": [resources]}
