"""The addresses of the REST interface under ``/api/v1/``. The sending side of it stands in ``ingest``."""

from django.urls import URLPattern, URLResolver, path
from drf_spectacular.views import SpectacularAPIView

from frontend.api import catalogue, charts

app_name = "api"
urlpatterns: list[URLPattern | URLResolver] = [
    path("schema", SpectacularAPIView.as_view(), name="schema"),
    path("charts", charts.Charts.as_view(), name="charts"),
    path("apps", catalogue.Apps.as_view(), name="apps"),
    path("apps/<int:app_id>/sources", catalogue.Sources.as_view(), name="sources"),
    path("apps/<int:app_id>/metrics", catalogue.Metrics.as_view(), name="metrics"),
    path("apps/<int:app_id>/labels", catalogue.Labels.as_view(), name="labels"),
]
