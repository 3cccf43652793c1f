"""The watchman's ticks. They carry no truth: a tick lost, late or doubled changes nothing but the time of day."""

from celery import shared_task

from alerts import evaluate, notify, prune
from alerts.notify import outbox
from alerts.readings import ask_engine
from spm.clock import SystemClock


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def evaluate_rules() -> None:
    """Judge the rules that are due."""
    clock = SystemClock()
    evaluate.tick(ask=ask_engine, clock=clock)
    prune.prune(clock.now_ms())


@shared_task(ignore_result=True)  # type: ignore[untyped-decorator]
def deliver_outbox() -> None:
    """Send the messages that are due."""
    outbox.deliver(notifiers=notify.standard(), clock=SystemClock())
