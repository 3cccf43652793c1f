"""The addresses of the whole site: each room lists its own, this module joins them."""

from django.contrib import admin
from django.urls import include, path, re_path
from django.views.generic import RedirectView

from alerts.pages.health import alerting_health
from alerts.pages.notification_links import link_page
from frontend import health
from frontend.api.unknown import unknown_operation
from frontend.prometheus.endpoint import unknown_address

admin.autodiscover()  # here and not at the start of every process: see ``spm.apps``

_OLD_ADMIN_PAGES = {  # kept for one version → their names now
    "admin/ingest/letterbox/": "admin:ingest_appdeadletters_changelist",
    "admin/ingest/letterbox/<int:app_id>/letters/": "admin:ingest_dead_letters",
    "admin/ingest/accountbook/": "admin:ingest_appbalance_changelist",
    "admin/ingest/accountbook/<int:app_id>/account/": "admin:ingest_balance",
}

handler400 = "frontend.refusals.bad_request"
handler500 = "frontend.refusals.server_error"
urlpatterns = [
    *(path(old, RedirectView.as_view(pattern_name=name, query_string=True)) for old, name in _OLD_ADMIN_PAGES.items()),
    path("admin/", admin.site.urls),
    *(path(address, health.live) for address in ("livez", "-/healthy", "prometheus/-/healthy")),
    *(path(address, health.ready) for address in ("readyz", "-/ready", "prometheus/-/ready")),
    path("", include("ingest.http.urls")),  # before Prometheus' API: some senders write below its address
    path("prometheus/", include("frontend.prometheus.urls")),
    re_path("^prometheus/", unknown_address),
    path("api/v1/", include("frontend.api.urls")),
    path("api/v1/", include("frontend.transfer.urls")),
    path("api/v2/", include("frontend.api.alertmanager.urls")),  # beside Influx' addresses, which are of ingest
    path("alerts/", include("alerts.urls")),
    path("health/alerting", alerting_health, name="alerting-health"),
    path("a/<str:text>", link_page, name="alert-link"),
    re_path("^api/", unknown_operation),
    path("", include("frontend.urls")),
    path("", include("frontend.pages.account.urls")),
]
