"""The addresses of the front door."""

from django.urls import URLPattern, URLResolver, path, re_path

from ingest.http import broker_auth, pings
from ingest.http import otlp as http_otlp
from ingest.http import prometheus as http_prometheus
from ingest.http import samples as http_samples

app_name = "ingest"
LEAN = (  # those that agents call all the time: see ``ingest.http.fast_path``
    "metrics",
    "write",
    "write-v2",
    "write-v3",
    "collectd",
    "ping",
    "health",
    "ready",
    "query",
    "remote-write",
    "remote-push",
    "text",
    "otlp",
    "otlp-own",
    "otlp-api",
)
urlpatterns: list[URLPattern | URLResolver] = [
    path("api/v1/metrics", http_samples.metrics, name="metrics"),
    path("write", http_samples.write, name="write"),
    path("api/v2/write", http_samples.write, name="write-v2"),
    path("api/v3/write_lp", http_samples.write, name="write-v3"),
    path("api/v1/collectd", http_samples.collectd_lists, name="collectd"),
    path("ping", http_samples.ping, name="ping"),
    path("health", http_samples.health, name="health"),
    path("ready", http_samples.health, name="ready"),
    path("query", http_samples.query, name="query"),
    path("api/v1/write", http_prometheus.remote, name="remote-write"),
    path("api/v1/push", http_prometheus.remote, name="remote-push"),
    path("api/v1/import/prometheus", http_prometheus.text, name="text"),
    path("v1/metrics", http_otlp.metrics, name="otlp"),
    path("otlp/v1/metrics", http_otlp.metrics, name="otlp-own"),
    path("api/v1/otlp/v1/metrics", http_otlp.metrics, name="otlp-api"),
    re_path(r"^metrics/(?P<group>job(?:@base64)?/.+)$", http_prometheus.pushed, name="pushed"),
    re_path(r"^ping/(?P<key>[^/]+)(?:/(?P<act>[^/]+))?$", pings.ping, name="heartbeat"),
    re_path(
        rf"^broker/(?P<secret>[^/]+)/(?P<question>{'|'.join(broker_auth.QUESTIONS)})$", broker_auth.ask, name="broker"
    ),
]
