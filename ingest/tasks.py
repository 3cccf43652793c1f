"""The scheduled tasks of ingest: advance low-water marks, and send the series about sources.

They hold no state: a task does what a lost one left undone. Their names are those of earlier versions, so that workers
of two versions understand each other.
"""

from celery import shared_task
from django.conf import settings

from ingest.accept.process_acceptor import process_acceptor
from ingest.accounting import rounds
from ingest.system_series import source_series
from spm.clock import SystemClock
from spm.store.backends import open_backend


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def keep_marks() -> int:
    """Advance the low-water marks of apps with recent messages."""
    return rounds.run_round(open_backend(settings.SPM_STORE_URL), SystemClock()).moved


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def tell_sources() -> int:
    """Send series about sources with an announced period, unless own metrics are switched off."""
    if settings.SPM_OWN_METRICS_S <= 0:
        return 0
    store = open_backend(settings.SPM_STORE_URL)
    return source_series.send_source_series(store, process_acceptor(), SystemClock().now_ms())
