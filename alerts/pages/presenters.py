"""What the watchman's pages show, made from rows: a rule with its state in one word, a message as a mail."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Count, Q, QuerySet

from alerts.durations import spell
from alerts.models import Outbox, Rule
from alerts.notify.base import DeliveryFailed
from alerts.notify.email import compose, message_id
from alerts.rulebook import messages_of, rules_of
from alerts.rules import State
from spm.accounts.models import App

MESSAGES_SHOWN = 200
EVENTS_SHOWN = 100


@dataclass(frozen=True, slots=True)
class RuleRow:
    """A rule, how many of its series fire or are about to, and all that in one word."""

    rule: Rule
    firing: int
    pending: int
    status: str
    condition: str


@dataclass(frozen=True, slots=True)
class Mail:
    """A message as its receivers see it."""

    message: Outbox
    message_id: str
    subject: str
    sender: str
    receivers: Sequence[str]
    body: str


def rows_of(app: App) -> list[RuleRow]:
    """The app's rules, those that fire first."""
    order = {"firing": 0, "error": 1, "pending": 2}
    rules = _counted(Rule.objects.filter(pk__in=rules_of(app)))
    return sorted(rules, key=lambda row: (order.get(row.status, 3), row.rule.name.lower()))


def row_of(rule: Rule) -> RuleRow:
    """One rule, likewise."""
    return _counted(Rule.objects.filter(pk=rule.pk))[0]


def mails_of(app: App) -> list[Mail]:
    """The app's latest messages."""
    return [mail_of(message) for message in messages_of(app).filter(kind="mail")[:MESSAGES_SHOWN]]


def mail_of(message: Outbox) -> Mail:
    """The message as the notifier composes it, or what keeps it from being composed."""
    key = message_id(message.key)
    try:
        mail = compose(message.key, message.payload)
    except DeliveryFailed as failure:
        return Mail(message, key, str(message.payload.get("name", "")), "", (), str(failure))
    return Mail(message, key, str(mail.subject), mail.from_email, mail.to, str(mail.body))


def wording(rule: Rule) -> str:
    """The rule's condition as people say it."""
    judged = f"{rule.comparator} {rule.threshold:g}" if rule.comparator else "has an answer"
    lasting = f" for {spell(rule.for_ms)}" if rule.for_ms else ""
    return judged + lasting


def _counted(rules: QuerySet[Rule]) -> list[RuleRow]:
    firing = Count("alerts", filter=Q(alerts__state=State.FIRING))
    pending = Count("alerts", filter=Q(alerts__state=State.PENDING))
    return [
        RuleRow(rule, rule.firing, rule.pending, _status(rule, rule.firing, rule.pending), wording(rule))
        for rule in rules.annotate(firing=firing, pending=pending).select_related("app", "created_by")
    ]


def _status(rule: Rule, firing: int, pending: int) -> str:
    if not rule.enabled:
        return "off"
    if firing:
        return "firing"
    if rule.error:
        return "error"
    return "pending" if pending else "ok" if rule.evaluated_ms else "new"
