"""The notifiers, by the kind of message they deliver. A new one is a file of this folder and a line here.

A rule lists its receivers as texts. Each receiver belongs to the first notifier that accepts it, so neither rules nor
pages name a notifier. Enter by ``NOTIFIERS`` or ``kind_of``.
"""

from alerts.models import DEFAULT_KIND
from alerts.notify.alertmanager import KIND as ALERTMANAGER
from alerts.notify.alertmanager import AlertmanagerNotifier
from alerts.notify.base import Notifier
from alerts.notify.chat import ChatNotifier
from alerts.notify.email import AccountMailNotifier, EmailNotifier
from alerts.notify.incidents import OpsgenieNotifier, PagerDutyNotifier
from alerts.notify.login_notices import ACCOUNT_KIND
from alerts.notify.webhook import WebhookNotifier

NOTIFIERS: dict[str, Notifier] = {
    DEFAULT_KIND: EmailNotifier(),
    ACCOUNT_KIND: AccountMailNotifier(),
    ALERTMANAGER: AlertmanagerNotifier(),
    "pagerduty": PagerDutyNotifier(),
    "opsgenie": OpsgenieNotifier(),
    "chat": ChatNotifier(),
    "webhook": WebhookNotifier(),  # last: it accepts every web address
}


def kind_of(receiver: str) -> str | None:
    """Return the kind of the first notifier that accepts the receiver, or None."""
    return next((kind for kind, notifier in NOTIFIERS.items() if notifier.accepts(receiver)), None)


def shown(kind: str, receiver: str) -> str:
    """Return a receiver as pages and interfaces show it, without what is secret of it."""
    return NOTIFIERS[kind].shown(receiver) if kind in NOTIFIERS else receiver


def receiver_hints() -> str:
    """Say what receivers may look like: ``mail address``."""
    return " or ".join(notifier.receiver_hint for notifier in NOTIFIERS.values() if notifier.receiver_hint)
