"""The registry of protocols: one line for each form in which samples arrive.

A new protocol is one module with a ``parse`` and one line in ``PROTOCOLS``. Its paths are answered by the common view
of ``ingest.http.samples``; a protocol whose clients expect answers of their own also has a view in
``ingest.http.urls``. Through RabbitMQ, ``by_content`` recognises a body by its beginning. Never: nothing here imports
Django.
"""

import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ingest.protocols import columns
from ingest.protocols.influx import reader as influx
from ingest.protocols.json import collectd
from ingest.protocols.json import samples as json_samples
from ingest.protocols.otlp import reader as otlp
from ingest.protocols.prometheus import remote_write
from ingest.protocols.prometheus import text as prometheus_text
from spm.wire import Parsed


class Parse(typing.Protocol):
    """Reads one body. ``BadMessage``: it is not of this protocol; ``LimitExceeded``: it holds more than one may.

    ``over_quota``: the app has more series than its quota allows, so its names must not fill the common cache.
    """

    def __call__(self, body: bytes, *, now_ms: int, over_quota: bool = ...) -> Parsed: ...


@dataclass(frozen=True, slots=True)
class Protocol:
    """One protocol. ``name`` is the one in arrivals and rejections; ``paths`` maps names of URLs to paths."""

    name: str
    parse: Parse
    paths: Mapping[str, str] = field(default_factory=dict)
    unit: str = "ms"  # of its times, for hints about times in the wrong unit; Influx' requests name their own
    recognises: Callable[[bytes], bool] | None = None  # a body that came through RabbitMQ


_INFLUX_PATHS = {"write": "write", "write-v2": "api/v2/write", "write-v3": "api/v3/write_lp"}
_REMOTE_PATHS = {"remote-write": "api/v1/write", "remote-push": "api/v1/push"}
_OTLP_PATHS = {"otlp": "v1/metrics", "otlp-own": "otlp/v1/metrics", "otlp-api": "api/v1/otlp/v1/metrics"}

INFLUX = Protocol("influx", influx.parse, _INFLUX_PATHS, "ns")
PROTOCOLS = (
    Protocol("json", json_samples.parse, {"metrics": "api/v1/metrics"}),
    INFLUX,
    Protocol("collectd", collectd.parse, {"collectd": "api/v1/collectd"}, "s", recognises=collectd.is_list),
    Protocol("remote_write", remote_write.parse, _REMOTE_PATHS),
    Protocol("prometheus_text", prometheus_text.parse, {"text": "api/v1/import/prometheus"}),
    Protocol("otlp", otlp.parse, _OTLP_PATHS, "ns"),
    Protocol("columns", columns.parse, recognises=columns.is_envelope),
)
