"""The scheduled tasks of ingest: advance low-water marks, send the series about sources, delete old exemplars.

They hold no state: a task does what a lost one left undone. Their names are those of earlier versions, so that workers
of two versions understand each other.
"""

from functools import partial

from celery import shared_task
from django.conf import settings

from ingest.accept.process_acceptor import process_acceptor
from ingest.accounting import rounds
from ingest.exemplars import storage as exemplar_storage
from ingest.system_series import source_series
from spm.clock import SystemClock
from spm.store.backends import open_backend
from spm.store.versions import retractions


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


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def prune_exemplars() -> int:
    """Delete exemplars that are older than what their app keeps, and those of erased samples."""
    store = open_backend(settings.SPM_STORE_URL)
    return exemplar_storage.prune(SystemClock().now_ms(), partial(retractions.read, store))
