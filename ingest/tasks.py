"""The front door's ticks. They carry no truth: the next one looks again at whatever a lost one has left."""

from celery import shared_task
from django.conf import settings

from ingest.accept.acceptor import front_door
from ingest.accounting import rounds
from ingest.system_series import source_series
from spm.clock import SystemClock
from spm.store.backends import open_backend


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def keep_marks() -> int:
    """Move the low-water marks of apps with news."""
    return rounds.make(open_backend(settings.SPM_STORE_URL), SystemClock()).moved


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def tell_sources() -> int:
    """Who of those that announced a period is up, and what of theirs is missing; not where nothing is to be sent."""
    if settings.SPM_OWN_METRICS_S <= 0:
        return 0
    return source_series.tell(open_backend(settings.SPM_STORE_URL), front_door(), SystemClock().now_ms())
