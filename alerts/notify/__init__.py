"""The ways to people. Enter by ``standard``: the notifiers by the kind of message they deliver."""

from collections.abc import Mapping

from alerts.notify.base import Notifier
from alerts.notify.email import MailNotifier


def standard() -> Mapping[str, Notifier]:
    """What the outbox delivers with."""
    return {"mail": MailNotifier()}
