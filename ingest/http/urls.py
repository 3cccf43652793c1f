"""The URLs of ingest: those of every registered protocol, and those that Influx clients ask first."""

from collections.abc import Iterable, Mapping

from django.urls import URLPattern, URLResolver, path, re_path

from ingest.http import broker_auth, pings
from ingest.http import otlp as http_otlp
from ingest.http import prometheus as http_prometheus
from ingest.http import samples as http_samples
from ingest.protocols.registry import PROTOCOLS, Protocol, ViewName

app_name = "ingest"
_VIEWS: Mapping[ViewName, http_samples.View] = {  # of protocols whose clients expect answers of their own
    ViewName.JSON: http_samples.metrics,
    ViewName.INFLUX: http_samples.write,
    ViewName.REMOTE_WRITE: http_prometheus.receive_remote_write,
    ViewName.PROMETHEUS_TEXT: http_prometheus.text,
    ViewName.OTLP: http_otlp.metrics,
}
_PROBES: Mapping[str, http_samples.View] = {  # what Influx clients ask before they write
    "ping": http_samples.ping,
    "health": http_samples.health,
    "ready": http_samples.health,
    "query": http_samples.query,
}
FAST_PATH_NAMES = (  # URLs that agents call all the time: see ``fast_path``
    *(name for protocol in PROTOCOLS for name in protocol.paths),
    *_PROBES,
)


def protocol_urls(protocols: Iterable[Protocol]) -> list[URLPattern]:
    """Return the URLs of these protocols, each with the view that its registry line names."""
    return [
        path(route, _VIEWS.get(protocol.view) or http_samples.common_view(protocol), name=name)
        for protocol in protocols
        for name, route in protocol.paths.items()
    ]


urlpatterns: list[URLPattern | URLResolver] = [
    *protocol_urls(PROTOCOLS),
    *(path(name, view, name=name) for name, view in _PROBES.items()),
    re_path(r"^metrics/(?P<group>job(?:@base64)?/.+)$", http_prometheus.pushgateway, name="pushgateway"),
    re_path(r"^ping/(?P<key>[^/]+)(?:/(?P<act>[^/]+))?$", pings.ping, name="heartbeat"),
    re_path(
        rf"^broker/(?P<secret>[^/]+)/(?P<question>{'|'.join(broker_auth.QUESTIONS)})$",
        broker_auth.answer_broker,
        name="broker",
    ),
]
