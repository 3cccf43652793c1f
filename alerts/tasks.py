"""The periodic tasks of alerting. A round that is lost, late or doubled only changes when the work is done."""

from celery import shared_task

from alerts import evaluate, prune
from alerts.expressions import open_session
from alerts.notify import login_notices, outbox
from alerts.notify.registry import NOTIFIERS
from alerts.telling import flush, refresh, sender
from spm.clock import SystemClock


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def evaluate_rules() -> None:
    """Judge the lanes that are due, and delete old rows."""
    clock = SystemClock()
    evaluate.evaluate_due_lanes(open_session=open_session, clock=clock)
    prune.prune(clock.now_ms())


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def deliver_outbox() -> None:
    """Write the notifications that are due and deliver them, and mail to people about their accounts."""
    clock = SystemClock()
    flush.flush_due(clock.now_ms())
    sender.deliver(notifiers=NOTIFIERS, clock=clock)
    login_notices.collect(clock.now_ms())
    outbox.deliver(notifiers=NOTIFIERS, clock=clock)


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def refresh_alertmanagers() -> None:
    """Say again to Alertmanagers what goes on, before they let it end."""
    refresh.refresh_due(SystemClock().now_ms())
