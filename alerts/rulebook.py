"""What people do to rules: write, change, switch off, delete. Each change is one transaction with its audit entry.

If the expression of a rule changes, or the rule is switched off or deleted, its open episodes end in the same
transaction: people who got a message that something fires get one that the rule no longer watches it, and why. An
evaluation under way loses its claim. The next evaluation is at the next time of the grid, so that a new episode never
begins at the time of an episode that an edit ended.
"""

from dataclasses import asdict, dataclass

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import QuerySet

from alerts import journal
from alerts.evaluate import aligned_ms
from alerts.models import EndReason, Outbox, Rule
from alerts.rules import Change, end_episode
from spm import limits
from spm.accounts import audit
from spm.accounts.models import App
from spm.errors import LimitExceeded


@dataclass(frozen=True, slots=True)
class Draft:
    """The fields of a rule that a person decides."""

    name: str
    expr: str
    comparator: str
    threshold: float
    recovery: float | None
    for_ms: int
    keep_firing_for_ms: int
    severity: str
    receivers: tuple[str, ...]
    enabled: bool


def rules_of(app: App) -> QuerySet[Rule]:
    """Select the app's rules, without deleted ones."""
    return Rule.objects.filter(app=app, deleted_ms=None)


def messages_of(app: App) -> QuerySet[Outbox]:
    """Select the app's messages, newest first."""
    return Outbox.objects.filter(app=app)


@transaction.atomic
def write(app: App, draft: Draft, *, by: User, now_ms: int) -> Rule:
    """Create a rule; the next round evaluates it."""
    if rules_of(app).count() >= limits.RULES_PER_APP_MAX:
        raise LimitExceeded("too many rules in this app", got=limits.RULES_PER_APP_MAX, remedy="Delete one first.")
    rule = Rule.objects.create(app=app, created_by=by, created_ms=now_ms, changed_ms=now_ms, **_fields(draft))
    _note(rule, "rule.create", by)
    return rule


@transaction.atomic
def change(rule: Rule, draft: Draft, *, by: User, now_ms: int) -> Rule:
    """Change a rule. Open episodes continue, unless the expression changes or the rule is switched off."""
    rule = _lock(rule)
    if rule.enabled and not draft.enabled:
        _end_episodes(rule, EndReason.SWITCHED_OFF, now_ms)
    elif rule.expr != draft.expr:
        _end_episodes(rule, EndReason.EDITED, now_ms)
    Rule.objects.filter(pk=rule.pk).update(
        changed_ms=now_ms, error="", evaluated_ms=aligned_ms(now_ms), **_fields(draft)
    )
    rule.refresh_from_db()
    _note(rule, "rule.change", by)
    return rule


@transaction.atomic
def delete(rule: Rule, *, by: User, now_ms: int) -> None:
    """Delete a rule. Its row and history stay."""
    rule = _lock(rule)
    _end_episodes(rule, EndReason.DELETED, now_ms)
    Rule.objects.filter(pk=rule.pk).update(deleted_ms=now_ms, changed_ms=now_ms, enabled=False)
    _note(rule, "rule.delete", by)


def _lock(rule: Rule) -> Rule:
    """Reload the rule and lock it until the end of the transaction; an evaluation under way loses its claim."""
    Rule.objects.filter(pk=rule.pk).update(claim=0, claim_until_ms=0)
    return Rule.objects.select_related("app").get(pk=rule.pk)


def _end_episodes(rule: Rule, reason: EndReason, now_ms: int) -> None:
    states, labels = journal.series_states(rule)
    steps = [(name, before, end_episode(before, now_ms)) for name, before in states.items()]
    changes = [Change(name, before, after) for name, before, after in steps if before is not after]
    journal.record(rule, changes, labels, at_ms=now_ms, end_reason=reason)


def _fields(draft: Draft) -> dict[str, object]:
    return {**asdict(draft), "receivers": list(draft.receivers)}


def _note(rule: Rule, action: str, by: User) -> None:
    audit.record(action, rule.name, actor=by, organisation=rule.app.organisation, detail={"rule": rule.pk})
