"""Only this room's addresses, so that its tests rest on no other room's pages."""

from django.urls import include, path

urlpatterns = [path("prometheus/", include("frontend.prometheus.urls"))]
