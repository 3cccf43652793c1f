"""Prometheus' HTTP API, under the address that a Grafana data source is given."""

from django.urls import path

from frontend.prometheus import views

urlpatterns = [
    path("api/v1/query", views.instant_query),
    path("api/v1/query_range", views.range_query),
    path("api/v1/query_exemplars", views.query_exemplars),
    path("api/v1/series", views.series),
    path("api/v1/labels", views.labels),
    path("api/v1/label/<str:name>/values", views.label_values),
    path("api/v1/metadata", views.metadata),
    path("api/v1/status/buildinfo", views.buildinfo),
]
