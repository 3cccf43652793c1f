"""What people do to rules: write, change, switch off, delete. Each change is one transaction with its audit entry.

A change takes the next number of the app's lane and adds a version that is in force from the lane's next step on; an
operation under way loses its number. If the expression changes, the instances that the new one does not select end; if
the rule is switched off or deleted, all of them end, and people who got a message that something fires get one that the
rule no longer watches it, and why.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, QuerySet

from alerts import journal
from alerts.judging import limits as judging_limits
from alerts.judging.kinds import Kind
from alerts.judging.lane_plan import aligned_ms
from alerts.judging.run import EndReason
from alerts.models import Instance, Lane, Rule, RuleVersionRow
from spm import limits
from spm.accounts import audit
from spm.accounts.models import App
from spm.errors import LimitExceeded
from spm.limits import RULE_PERIOD_MS


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
    missing: str = "hold"
    hold_ms: int = judging_limits.HOLD_MS
    missing_for_ms: int = judging_limits.MISSING_FOR_MS
    kind: str = Kind.THRESHOLD
    window_ms: int = judging_limits.WINDOW_MS
    horizon_ms: int = judging_limits.HORIZON_MS
    forget_ms: int = judging_limits.FORGET_MS
    weeks: int = judging_limits.ANOMALY_WEEKS
    spread_min: float = 0.0
    by: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


def rules_of(app: App) -> QuerySet[Rule]:
    """Select the app's rules, without deleted ones."""
    return Rule.objects.filter(app=app, deleted_ms=None)


@transaction.atomic
def write(app: App, draft: Draft, *, by: User, now_ms: int) -> Rule:
    """Create a rule; the lane's next step is its first one."""
    if rules_of(app).count() >= limits.RULES_PER_APP_MAX:
        raise LimitExceeded("too many rules in this app", got=limits.RULES_PER_APP_MAX, remedy="Delete one first.")
    lane = _take_number(app, now_ms)
    rule = Rule.objects.create(app=app, created_by=by, created_ms=now_ms, changed_ms=now_ms, **_fields(draft))
    _add_version(rule, lane)
    _note(rule, "rule.create", by)
    return rule


@transaction.atomic
def change(rule: Rule, draft: Draft, *, by: User, now_ms: int) -> Rule:
    """Change a rule. Open episodes go on, unless the new expression does not select them or it is switched off."""
    lane = _take_number(rule.app, now_ms)
    Rule.objects.filter(pk=rule.pk).update(changed_ms=now_ms, **_fields(draft))
    rule = Rule.objects.select_related("app").get(pk=rule.pk)
    _add_version(rule, lane)
    _note(rule, "rule.change", by)
    return rule


@transaction.atomic
def delete(rule: Rule, *, by: User, now_ms: int) -> None:
    """Delete a rule. Its row and history stay."""
    lane = _take_number(rule.app, now_ms)
    Rule.objects.filter(pk=rule.pk).update(deleted_ms=now_ms, changed_ms=now_ms, enabled=False)
    rule = Rule.objects.select_related("app").get(pk=rule.pk)
    _add_version(rule, lane)
    _note(rule, "rule.delete", by)


def _take_number(app: App, now_ms: int) -> Lane:
    """Take the next number of the app's lane, and lock it until the end of the transaction.

    A lane that has nothing to judge stands still. It is first moved to the present, so that a new rule is judged from
    now on.
    """
    start_ms = aligned_ms(now_ms, RULE_PERIOD_MS) - RULE_PERIOD_MS
    Lane.objects.get_or_create(app=app, defaults={"position_ms": start_ms, "first_ms": start_ms})
    Lane.objects.filter(app=app).update(seq=F("seq") + 1)
    lane = Lane.objects.get(app=app)
    is_idle = not rules_of(app).filter(enabled=True).exists() and not Instance.objects.filter(rule__app=app).exists()
    if is_idle and lane.position_ms < start_ms:
        Lane.objects.filter(pk=lane.pk).update(position_ms=start_ms, first_ms=start_ms)
        lane.refresh_from_db()
    return lane


def _add_version(rule: Rule, lane: Lane) -> None:
    """Add the rule's present content as the version from the lane's next step on.

    A version that was to begin at that step too was never in force, and is replaced.
    """
    from_ms = lane.position_ms + RULE_PERIOD_MS
    ended = EndReason.DELETED if rule.deleted_ms else "" if rule.enabled else EndReason.SWITCHED_OFF
    versions = RuleVersionRow.objects.filter(rule=rule)
    versions.filter(from_ms__gte=from_ms).delete()
    versions.filter(until_ms=None).update(until_ms=from_ms)
    versions.filter(until_ms__gt=from_ms).update(until_ms=from_ms)
    content = journal.content_of(rule, ended)
    RuleVersionRow.objects.create(rule=rule, from_ms=from_ms, seq=lane.seq, content=content)


def _fields(draft: Draft) -> dict[str, object]:
    return {**asdict(draft), "receivers": list(draft.receivers), "by": list(draft.by)}


def _note(rule: Rule, action: str, by: User) -> None:
    audit.record(action, rule.name, actor=by, organisation=rule.app.organisation, detail={"rule": rule.pk})
