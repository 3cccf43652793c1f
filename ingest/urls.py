"""The addresses of the front door."""

from django.urls import URLPattern, URLResolver, path, re_path

from ingest import broker, http

app_name = "ingest"
LEAN = ("metrics", "write", "write-v2", "ping", "query")  # those that agents call all the time: see ``ingest.lean``
urlpatterns: list[URLPattern | URLResolver] = [
    path("api/v1/metrics", http.metrics, name="metrics"),
    path("write", http.write, name="write"),
    path("api/v2/write", http.write, name="write-v2"),
    path("ping", http.ping, name="ping"),
    path("query", http.query, name="query"),
    re_path(rf"^broker/(?P<secret>[^/]+)/(?P<question>{'|'.join(broker.QUESTIONS)})$", broker.ask, name="broker"),
]
