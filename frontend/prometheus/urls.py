"""The URLs of Prometheus' HTTP API, below the address of a Grafana data source."""

from django.urls import path

from frontend.prometheus import alerting, federation, language, status, views

urlpatterns = [
    path("api/v1/query", views.instant_query),
    path("api/v1/query_range", views.range_query),
    path("api/v1/query_exemplars", views.query_exemplars),
    path("api/v1/series", views.series),
    path("api/v1/labels", views.labels),
    path("api/v1/label/<str:name>/values", views.label_values),
    path("api/v1/format_query", language.format_query),
    path("api/v1/parse_query", language.parse_query),
    path("api/v1/metadata", status.metadata),
    path("api/v1/rules", alerting.rules),
    path("api/v1/alerts", alerting.alerts),
    path("api/v1/targets", status.targets),
    path("api/v1/targets/metadata", status.empty_list),
    path("api/v1/alertmanagers", status.alertmanagers),
    path("api/v1/notifications", status.empty_list),
    path("api/v1/features", status.features),
    path("api/v1/status/buildinfo", status.buildinfo),
    path("api/v1/status/runtimeinfo", status.runtimeinfo),
    path("api/v1/status/flags", status.flags),
    path("api/v1/status/config", status.config),
    path("api/v1/status/tsdb", status.tsdb),
    path("api/v1/read", federation.remote_read),
    path("federate", federation.federate),
]
