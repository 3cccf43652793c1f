"""The addresses of ingest: those of every registered protocol, and those that Influx clients ask first.

``ENDPOINTS`` maps paths to endpoints, for the event loop; ``urlpatterns`` has the same as Django views, and the few
addresses that are Django's alone.
"""

from collections.abc import Callable, Iterable, Mapping

from django.urls import URLPattern, URLResolver, path, re_path

from ingest.http import broker_auth, pings
from ingest.http.django_views import view_of
from ingest.http.endpoints.base import Endpoint, PushEndpoint
from ingest.http.endpoints.opentsdb import opentsdb_endpoint
from ingest.http.endpoints.otlp import otlp_endpoint
from ingest.http.endpoints.prometheus import pushgateway_endpoint, remote_write_endpoint, text_endpoint
from ingest.http.endpoints.samples import PROBES, common_endpoint, influx_endpoint, json_endpoint
from ingest.protocols.registry import PROTOCOLS, Protocol, ViewName

app_name = "ingest"
_ENDPOINTS: Mapping[ViewName, Callable[[str], PushEndpoint]] = {  # of protocols whose clients expect own answers
    ViewName.JSON: json_endpoint,
    ViewName.INFLUX: influx_endpoint,
    ViewName.REMOTE_WRITE: remote_write_endpoint,
    ViewName.PROMETHEUS_TEXT: text_endpoint,
    ViewName.OTLP: otlp_endpoint,
    ViewName.OPENTSDB: opentsdb_endpoint,
}


def protocol_endpoints(protocols: Iterable[Protocol]) -> dict[str, PushEndpoint]:
    """Return route → endpoint of these protocols, each with the endpoint that its registry line names."""
    return {
        route: _ENDPOINTS[protocol.view](name) if protocol.view in _ENDPOINTS else common_endpoint(name, protocol)
        for protocol in protocols
        for name, route in protocol.paths.items()
    }


PUSHGATEWAY = pushgateway_endpoint("pushgateway")
ENDPOINTS: dict[str, Endpoint] = {**protocol_endpoints(PROTOCOLS), **{probe.name: probe for probe in PROBES}}
"""Endpoint by route, without the leading slash: addresses that agents call all the time."""


def urls_of(endpoints: Mapping[str, Endpoint]) -> list[URLPattern]:
    """Return the URLs of these endpoints, by their routes."""
    return [path(route, view_of(endpoint), name=endpoint.name) for route, endpoint in endpoints.items()]


def endpoint_of(path: str) -> Endpoint | None:
    """Return the endpoint of a path, ``None`` if another part of the site answers it."""
    endpoint = ENDPOINTS.get(path[1:])
    if endpoint is None and path.startswith(("/metrics/job/", "/metrics/job@base64/")):
        return PUSHGATEWAY
    return endpoint


urlpatterns: list[URLPattern | URLResolver] = [
    *urls_of(ENDPOINTS),
    re_path(r"^metrics/(?P<group>job(?:@base64)?/.+)$", view_of(PUSHGATEWAY), name=PUSHGATEWAY.name),
    re_path(r"^ping/(?P<key>[^/]+)(?:/(?P<act>[^/]+))?$", pings.ping, name="heartbeat"),
    re_path(
        rf"^broker/(?P<secret>[^/]+)/(?P<question>{'|'.join(broker_auth.QUESTIONS)})$",
        broker_auth.answer_broker,
        name="broker",
    ),
]
