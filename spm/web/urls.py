"""The addresses of the whole site: each room lists its own, this module joins them."""

from django.contrib import admin
from django.urls import include, path, re_path

from frontend.prometheus.endpoint import unknown

admin.autodiscover()  # here and not at the start of every process: see ``spm.apps``

urlpatterns = [
    path("admin/", admin.site.urls),
    path("prometheus/", include("frontend.prometheus.urls")),
    re_path("^prometheus/", unknown),
    path("api/v1/", include("frontend.api.urls")),
    path("api/v1/", include("frontend.transfer.urls")),
    path("alerts/", include("alerts.urls")),
    path("", include("ingest.http.urls")),
    path("", include("frontend.urls")),
]
