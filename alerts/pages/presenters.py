"""Turns rows into what the alerting pages draw: a rule with its status, a message as its receivers see it."""

from dataclasses import dataclass

from django.db.models import Count, Q, QuerySet

from alerts.durations import spell
from alerts.models import Outbox, Rule
from alerts.notify.base import DeliveryFailed, RenderedMessage
from alerts.notify.registry import NOTIFIERS
from alerts.rulebook import messages_of, rules_of
from alerts.rules import State
from spm.accounts.models import App

MESSAGES_SHOWN = 200
EVENTS_SHOWN = 100


@dataclass(frozen=True, slots=True)
class RuleRow:
    """A rule, the number of its firing and pending series, and its status in one word."""

    rule: Rule
    firing: int
    pending: int
    status: str
    condition: str


@dataclass(frozen=True, slots=True)
class MessageRow:
    """A row of the outbox, and the message as its receivers see it."""

    row: Outbox
    rendered: RenderedMessage


def rows_of(app: App) -> list[RuleRow]:
    """List the app's rules, firing ones first."""
    order = {"firing": 0, "error": 1, "pending": 2}
    rules = _rule_rows(Rule.objects.filter(pk__in=rules_of(app)))
    return sorted(rules, key=lambda row: (order.get(row.status, 3), row.rule.name.lower()))


def row_of(rule: Rule) -> RuleRow:
    """Present one rule."""
    return _rule_rows(Rule.objects.filter(pk=rule.pk))[0]


def message_rows_of(app: App) -> list[MessageRow]:
    """List the app's latest messages."""
    return [message_row_of(row) for row in messages_of(app)[:MESSAGES_SHOWN]]


def message_row_of(row: Outbox) -> MessageRow:
    """Present a message as its notifier renders it, or say why it cannot be rendered."""
    subject = str(row.payload.get("name", ""))
    if row.kind not in NOTIFIERS:
        return MessageRow(row, RenderedMessage(subject, (), (), f"There is no notifier for {row.kind!r}."))
    try:
        return MessageRow(row, NOTIFIERS[row.kind].render(row.key, row.payload))
    except DeliveryFailed as failure:
        return MessageRow(row, RenderedMessage(subject, (), (), str(failure)))


def condition_text(rule: Rule) -> str:
    """Write the rule's condition: ``> 90 for 5m``."""
    comparison = f"{rule.comparator} {rule.threshold:g}" if rule.comparator else "has an answer"
    duration = f" for {spell(rule.for_ms)}" if rule.for_ms else ""
    return comparison + duration


def _rule_rows(rules: QuerySet[Rule]) -> list[RuleRow]:
    firing = Count("alerts", filter=Q(alerts__state=State.FIRING))
    pending = Count("alerts", filter=Q(alerts__state=State.PENDING))
    return [
        RuleRow(rule, rule.firing, rule.pending, _status(rule, rule.firing, rule.pending), condition_text(rule))
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
