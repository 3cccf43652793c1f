"""The periodic task of the frontend: sends the metrics of the whole site to the product's own app."""

from celery import shared_task
from django.conf import settings

from frontend import site_metrics
from ingest.system_series import process_metrics
from spm.accounts import internal_app as accounts
from spm.clock import SystemClock
from spm.store.backends import open_backend


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def send_site_metrics() -> bool:
    """Read and send the figures, if the product has an own app and the settings allow it."""
    if settings.SPM_OWN_METRICS_S <= 0 or accounts.app_number() is None:
        return False
    return process_metrics.send(
        "site", site_metrics.read_figures(open_backend(settings.SPM_STORE_URL), SystemClock().now_ms())
    )
