"""The desk's one task: the figures of the whole site, sent to the product's own app. The next tick sends newer ones."""

from celery import shared_task
from django.conf import settings

from frontend import site_metrics
from ingest.system_series import process_metrics
from spm.accounts import internal_app as accounts
from spm.clock import SystemClock
from spm.store.backends import open_backend


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def note_standing() -> bool:
    """Read and send them, where there is an own app and the settings do not say that nothing is sent."""
    if settings.SPM_OWN_METRICS_S <= 0 or accounts.app_number() is None:
        return False
    return process_metrics.send(
        "site", site_metrics.figures(open_backend(settings.SPM_STORE_URL), SystemClock().now_ms())
    )
