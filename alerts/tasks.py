"""The periodic tasks of alerting. A round that is lost, late or doubled only changes when the work is done."""

from celery import shared_task
from django.conf import settings

from alerts import evaluate, prune
from alerts.expressions import open_storage
from alerts.judging.limits import JUDGES
from alerts.noise import weekly
from alerts.notify import login_notices, outbox
from alerts.notify.registry import NOTIFIERS
from alerts.recording.lane import SeriesWriter, record_app, write_alerts, write_due_series
from alerts.telling import flush, refresh, sender
from alerts.telling.limits import OUTBOX_ROUNDS
from alerts.watch import observer
from ingest.accept.process_acceptor import process_acceptor
from spm.clock import SystemClock


@shared_task(ignore_result=True, at_once_max=JUDGES)  # type: ignore[untyped-decorator]
def evaluate_rules() -> None:
    """Record what is due, judge the lanes that are due, and write ALERTS."""
    clock = SystemClock()
    series = SeriesWriter(open_storage, process_acceptor, clock)
    write_due_series(series, record_app)
    evaluate.evaluate_due_lanes(observe=observer(settings.SPM_STORE_URL, clock), clock=clock)
    write_due_series(series, write_alerts)


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def prune_alerts() -> None:
    """Delete old rows."""
    prune.prune(SystemClock().now_ms())


@shared_task(ignore_result=True, at_once_max=OUTBOX_ROUNDS)  # type: ignore[untyped-decorator]
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


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def report_noise() -> None:
    """Make the noise reports of the last week that are missing."""
    weekly.make_due(SystemClock())
