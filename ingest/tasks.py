"""The front door's ticks. They carry no truth: the next one looks again at whatever a lost one has left."""

from celery import shared_task
from django.conf import settings

from ingest import rounds
from spm.clock import SystemClock
from spm.store.backends import open_backend


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def keep_marks() -> int:
    """Move the low-water marks of apps with news."""
    return rounds.make(open_backend(settings.SPM_STORE_URL), SystemClock()).moved
