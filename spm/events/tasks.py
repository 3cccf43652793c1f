"""The periodic tasks of the stream. A round that is lost or doubled only changes when the work is done."""

from celery import shared_task

from spm.clock import SystemClock
from spm.events import log, relay


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def relay_events() -> None:
    """Give positions to events that wait for one."""
    relay.advance_all()


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def prune_events() -> None:
    """Delete events past their retention."""
    log.prune(SystemClock().now_ms())
