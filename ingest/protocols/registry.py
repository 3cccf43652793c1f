"""The registry of protocols: one line for each form in which samples arrive.

A new protocol is one module with a ``parse`` and one line in ``PROTOCOLS``. ``ingest.http.urls`` makes its URLs: the
common view answers, unless the line names a view of its own. Through RabbitMQ, ``by_content`` recognises a body by its
beginning. Graphite, StatsD and OpenTSDB's lines arrive in line protocol, by ``ingest.sidecar``. Enter by
``PROTOCOLS``. Never: nothing here imports Django, so a line names its view instead of holding it.
"""

import enum
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ingest.protocols import columns
from ingest.protocols.influx import reader as influx
from ingest.protocols.json import collectd, opentsdb
from ingest.protocols.json import samples as json_samples
from ingest.protocols.otlp import reader as otlp
from ingest.protocols.prometheus import remote_write
from ingest.protocols.prometheus import text as prometheus_text
from spm.wire import Parsed


class Parse(typing.Protocol):
    """Reads one body. ``BadMessage``: it is not of this protocol; ``LimitExceeded``: it holds more than a message may.

    ``over_quota``: the app has more series than its quota allows, so its names must not fill the common cache.
    """

    def __call__(self, body: bytes, *, now_ms: int, over_quota: bool = ...) -> Parsed: ...


class ViewName(enum.Enum):
    """The views of ``ingest.http.urls`` that answer the requests of a protocol."""

    COMMON = "common"  # 200, or 400 with a report if something was rejected
    JSON = "json"
    INFLUX = "influx"
    REMOTE_WRITE = "remote_write"
    PROMETHEUS_TEXT = "prometheus_text"
    OTLP = "otlp"
    OPENTSDB = "opentsdb"


@dataclass(frozen=True, slots=True)
class Protocol:
    """One protocol. ``name`` is its name in arrivals and rejections; ``paths`` maps names of URLs to paths."""

    name: str
    parse: Parse
    view: ViewName = ViewName.COMMON
    paths: Mapping[str, str] = field(default_factory=dict)
    unit: str = "ms"  # of its times, for hints about times in the wrong unit; a request of Influx names its own
    recognises: Callable[[bytes], bool] | None = None  # whether a body from RabbitMQ is of this protocol


_INFLUX_PATHS = {"write": "write", "write-v2": "api/v2/write", "write-v3": "api/v3/write_lp"}
_REMOTE_PATHS = {
    "remote-write": "api/v1/write",
    "remote-push": "api/v1/push",
    "remote-write-prometheus": "prometheus/api/v1/write",  # below the address that a Grafana data source has
}
_OTLP_PATHS = {
    "otlp": "v1/metrics",
    "otlp-own": "otlp/v1/metrics",
    "otlp-api": "api/v1/otlp/v1/metrics",
    "otlp-prometheus": "prometheus/api/v1/otlp/v1/metrics",
}

_COLLECTD_PATHS = {"collectd": "api/v1/collectd"}

INFLUX = Protocol("influx", influx.parse, ViewName.INFLUX, _INFLUX_PATHS, "ns")
PROTOCOLS: tuple[Protocol, ...] = (
    Protocol("json", json_samples.parse, ViewName.JSON, {"metrics": "api/v1/metrics"}),
    INFLUX,
    Protocol("collectd", collectd.parse, ViewName.COMMON, _COLLECTD_PATHS, "s", collectd.is_list),
    Protocol("remote_write", remote_write.parse, ViewName.REMOTE_WRITE, _REMOTE_PATHS),
    Protocol("prometheus_text", prometheus_text.parse, ViewName.PROMETHEUS_TEXT, {"text": "api/v1/import/prometheus"}),
    Protocol("opentsdb", opentsdb.parse, ViewName.OPENTSDB, {"opentsdb": "api/put"}, "s"),
    Protocol("otlp", otlp.parse, ViewName.OTLP, _OTLP_PATHS, "ns"),
    Protocol("columns", columns.parse, recognises=columns.is_envelope),
)
