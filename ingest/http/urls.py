"""The addresses at which data arrives: those of every registered protocol, and those that Influx clients ask first."""

from collections.abc import Mapping

from django.urls import URLPattern, URLResolver, path, re_path

from ingest.http import broker_auth, pings
from ingest.http import otlp as http_otlp
from ingest.http import prometheus as http_prometheus
from ingest.http import samples as http_samples
from ingest.protocols.registry import PROTOCOLS

app_name = "ingest"
_VIEWS: Mapping[str, http_samples.View] = {  # of protocols whose clients expect answers of their own
    "json": http_samples.metrics,
    "influx": http_samples.write,
    "remote_write": http_prometheus.remote,
    "prometheus_text": http_prometheus.text,
    "otlp": http_otlp.metrics,
}
_PROBES: Mapping[str, http_samples.View] = {  # what clients of Influx ask before they write
    "ping": http_samples.ping,
    "health": http_samples.health,
    "ready": http_samples.health,
    "query": http_samples.query,
}
LEAN = (  # those that agents call all the time: see ``ingest.http.fast_path``
    *(name for protocol in PROTOCOLS for name in protocol.paths),
    *_PROBES,
)
urlpatterns: list[URLPattern | URLResolver] = [
    *(
        path(route, _VIEWS.get(protocol.name) or http_samples.common_view(protocol), name=name)
        for protocol in PROTOCOLS
        for name, route in protocol.paths.items()
    ),
    *(path(name, view, name=name) for name, view in _PROBES.items()),
    re_path(r"^metrics/(?P<group>job(?:@base64)?/.+)$", http_prometheus.pushed, name="pushed"),
    re_path(r"^ping/(?P<key>[^/]+)(?:/(?P<act>[^/]+))?$", pings.ping, name="heartbeat"),
    re_path(
        rf"^broker/(?P<secret>[^/]+)/(?P<question>{'|'.join(broker_auth.QUESTIONS)})$", broker_auth.ask, name="broker"
    ),
]
