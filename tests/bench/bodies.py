"""The same samples of a fleet in the words of every protocol, as bodies ready to be posted, here and to the peer.

``FORMS`` lists them: how a stretch of a fleet is encoded, where it goes, and under which headers. A peer that knows a
protocol by another body or not at all says so in ``peer``. Remote write is written as Prometheus does: a series of its
own for every sample.
"""

import gzip
import json
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import cramjam
import zstandard
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from tests.support.fleet import FIELDS, Fleet

Encode = Callable[[Fleet, range, range], bytes]


@dataclass(frozen=True, slots=True)
class Address:
    """Where a body goes."""

    path: str
    encode: Encode
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Form:
    """One protocol, here and at the peer."""

    name: str
    here: Address
    peer: Address | None

    def of_peer(self) -> Address:
        """What the peer is sent: remote write where it does not read the form."""
        return self.peer or _REMOTE


def bodies(fleet: Fleet, encode: Encode, *, steps: int, hosts: int) -> Iterator[bytes]:
    """The whole fleet in bodies of so many steps and hosts, in the order of time."""
    for step in range(0, fleet.steps, steps):
        for host in range(0, fleet.hosts, hosts):
            some = range(host, min(host + hosts, fleet.hosts))
            yield encode(fleet, range(step, min(step + steps, fleet.steps)), some)


def tags_of(host: int) -> dict[str, str]:
    """What ``Fleet.lines`` says of a host."""
    return {"hostname": f"host_{host}", "region": f"eu-{host % 4}", "rack": str(host % 50)}


def lines(fleet: Fleet, steps: range, hosts: range) -> bytes:
    """Influx line protocol."""
    return fleet.lines(steps, hosts)


def text(fleet: Fleet, steps: range, hosts: range) -> bytes:
    """Prometheus' text format, with times."""
    heads = [[f"cpu_{f}{{{_quoted(tags_of(h))}}} " for f in FIELDS] for h in hosts]
    lines = []
    for step in steps:
        for head, (ms, row) in zip(heads, _rows(fleet, step, hosts), strict=True):
            lines += [f"{one}{value} {ms}\n" for one, value in zip(head, row, strict=True)]
    return "".join(lines).encode()


def remote_write(fleet: Fleet, steps: range, hosts: range) -> bytes:
    """A WriteRequest, as snappy block: for every sample its labels again."""
    heads = [[_labels({"__name__": f"cpu_{f}", **tags_of(h)}) for f in FIELDS] for h in hosts]
    series = []
    for step in steps:
        for head, (ms, row) in zip(heads, _rows(fleet, step, hosts), strict=True):
            moment = b"\x10" + _varint(ms)
            for labels, value in zip(head, row, strict=True):
                sample = b"\x09" + _DOUBLES[value] + moment
                series.append(_field(1, labels + _field(2, sample)))
    return bytes(cramjam.snappy.compress_raw(b"".join(series)))


def otlp(fleet: Fleet, steps: range, hosts: range) -> bytes:
    """An ExportMetricsServiceRequest: per host one resource, per field one gauge."""
    request = ExportMetricsServiceRequest()
    for host in hosts:
        scope = request.resource_metrics.add().scope_metrics.add()
        attributes = [KeyValue(key=k, value=AnyValue(string_value=v)) for k, v in tags_of(host).items()]
        for field, name in enumerate(FIELDS):
            gauge = scope.metrics.add(name=f"cpu_{name}").gauge
            for step in steps:
                nanos = int(fleet.ts[step, host]) * 1_000_000
                value = float(fleet.values[step, host, field])
                gauge.data_points.add(attributes=attributes, time_unix_nano=nanos, as_double=value)
    return bytes(request.SerializeToString())


def columns(fleet: Fleet, steps: range, hosts: range) -> bytes:
    """Our own JSON, by columns."""
    return json.dumps(
        {
            "series": [
                {"metric": name, "tags": tags, "times": times, "values": values}
                for name, tags, times, values in _columns(fleet, steps, hosts)
            ]
        }
    ).encode()


def json_lines(fleet: Fleet, steps: range, hosts: range) -> bytes:
    """The peer's JSON, by columns, a line for each series."""
    return "".join(
        json.dumps({"metric": {"__name__": name, **tags}, "values": values, "timestamps": times}) + "\n"
        for name, tags, times, values in _columns(fleet, steps, hosts)
    ).encode()


def collectd(fleet: Fleet, steps: range, hosts: range) -> bytes:
    """collectd's JSON: one list of ten values for each host and step."""
    return json.dumps(
        [
            {
                "values": row,
                "dstypes": ["gauge"] * len(FIELDS),
                "dsnames": FIELDS,
                "time": ms / 1000,
                "interval": 10.0,
                "host": f"host_{host}",
                "plugin": "cpu",
                "plugin_instance": "",
                "type": "cpu",
                "type_instance": "",
            }
            for step in steps
            for host, (ms, row) in zip(hosts, _rows(fleet, step, hosts), strict=True)
        ]
    ).encode()


def _rows(fleet: Fleet, step: int, hosts: range) -> Iterator[tuple[int, list[int]]]:
    """(ms, values) of each host at a step."""
    part = slice(hosts.start, hosts.stop)
    return zip(fleet.ts[step, part].tolist(), fleet.values[step, part].astype(int).tolist(), strict=True)


def _columns(fleet: Fleet, steps: range, hosts: range) -> Iterator[tuple[str, dict[str, str], list[int], list[int]]]:
    part = slice(steps.start, steps.stop)
    for host in hosts:
        times = fleet.ts[part, host].tolist()
        for field, name in enumerate(FIELDS):
            yield f"cpu_{name}", tags_of(host), times, fleet.values[part, host, field].astype(int).tolist()


def _quoted(tags: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{value}"' for name, value in tags.items())


def _labels(labels: Mapping[str, str]) -> bytes:
    pairs = sorted(labels.items())
    return b"".join(_field(1, _field(1, n.encode()) + _field(2, v.encode())) for n, v in pairs)


def _field(number: int, payload: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(payload)) + payload


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    return bytes(encoded) + bytes([number])


def _packed(address: Address, encoding: str, compress: Callable[[bytes], bytes]) -> Address:
    """The same bodies in line protocol, compressed."""
    headers = {**address.headers, "Content-Encoding": encoding}
    return Address(address.path, lambda *arguments: compress(address.encode(*arguments)), headers)


_DOUBLES = [struct.pack("<d", value) for value in range(101)]  # a fleet's values are whole, from 0 to 100
_PROTOBUF = {"Content-Type": "application/x-protobuf"}
_REMOTE = Address(
    "/api/v1/write",
    remote_write,
    {**_PROTOBUF, "Content-Encoding": "snappy", "X-Prometheus-Remote-Write-Version": "0.1.0"},
)
_LINES = Address("/write?precision=ms", lines, {})
_TEXT = Address("/api/v1/import/prometheus", text, {"Content-Type": "text/plain"})
_JSON = {"Content-Type": "application/json"}
FORMS = (
    Form("line protocol", _LINES, _LINES),
    Form("gzip", _packed(_LINES, "gzip", gzip.compress), _packed(_LINES, "gzip", gzip.compress)),
    Form("zstd", _packed(_LINES, "zstd", zstandard.ZstdCompressor().compress), None),
    Form("remote write", _REMOTE, _REMOTE),
    Form("OTLP", Address("/v1/metrics", otlp, _PROTOBUF), None),
    Form("Prometheus text", _TEXT, _TEXT),
    Form("JSON", Address("/api/v1/metrics", columns, _JSON), Address("/api/v1/import", json_lines, {})),
    Form("collectd", Address("/api/v1/collectd", collectd, _JSON), None),
)
