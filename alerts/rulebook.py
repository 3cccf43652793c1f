"""What people do to rules: write, change, switch off, delete. Each change is one transaction with its audit entry.

A change takes the next number of the app's lane and adds a version that is in force from the lane's next step on; an
operation under way loses its number. If the expression changes, the instances that the new one does not select end; if
the rule is switched off or deleted, all of them end, and people who got a message that something fires get one that the
rule no longer watches it, and why.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, QuerySet

from alerts import journal
from alerts.judging import composites
from alerts.judging import limits as judging_limits
from alerts.judging.instances.keys import EndReason
from alerts.judging.kinds import Kind
from alerts.judging.lane_plan import aligned_ms
from alerts.models import Aspect, Episode, EpisodeStatus, Instance, Lane, ManualEnd, Rule, RuleGroup, RuleVersionRow
from alerts.telling import hook
from alerts.telling.configuration import schedule_of
from alerts.telling.decide.windows import check_timing
from spm import limits
from spm.accounts import audit
from spm.accounts.models import App
from spm.errors import BadQuery, LimitExceeded, Refused
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
    schedule_cron: str = ""
    schedule_zone: str = "UTC"
    schedule_ms: int = limits.RULE_SCHEDULE_MS


def rules_of(app: App) -> QuerySet[Rule]:
    """Select the app's rules, without deleted ones."""
    return Rule.objects.filter(app=app, deleted_ms=None)


@transaction.atomic
def write(app: App, draft: Draft, *, by: User | None, now_ms: int, by_name: str = "") -> Rule:
    """Create a rule; the lane's next step is its first one. ``by_name``: the program, if no person writes it."""
    if (count := rules_of(app).count()) >= limits.RULES_PER_APP_MAX:
        most = f"at most {limits.RULES_PER_APP_MAX}"
        raise LimitExceeded("too many rules in this app", got=count + 1, wanted=most, remedy="Delete one first.")
    rule = begin_edit(app, now_ms=now_ms).create(draft, created_by=by)
    _note(rule, "rule.create", by, by_name)
    return rule


@transaction.atomic
def change(
    rule: Rule, draft: Draft, *, by: User | None, now_ms: int, by_name: str = "", seen_ms: int | None = None
) -> Rule:
    """Change a rule. Open episodes go on, unless the new expression does not select them or it is switched off.

    ``seen_ms``: when the version that the person saw was written; a newer one is not overwritten, but ``Refused``.
    """
    edit = begin_edit(rule.app, now_ms=now_ms)
    if seen_ms is not None and not rules_of(rule.app).filter(pk=rule.pk, changed_ms=seen_ms).exists():
        remedy = "Look at it in another tab. If you save again, your version replaces it."
        raise Refused("nothing is saved: somebody else has changed this rule meanwhile", remedy=remedy)
    _check_schedule(draft)
    rule = edit.change(rule, _fields(draft))
    _note(rule, "rule.change", by, by_name)
    return rule


@transaction.atomic
def delete(rule: Rule, *, by: User | None, now_ms: int, by_name: str = "") -> None:
    """Delete a rule. Its row and history stay."""
    _note(begin_edit(rule.app, now_ms=now_ms).delete(rule), "rule.delete", by, by_name)


@transaction.atomic
def end_alert(episode: Episode, *, by: User, now_ms: int) -> ManualEnd:
    """End an open alert at the lane's next step; it fires again only after it was well. Raises ``Refused``.

    Judging ends it, so that receivers hear of it as of any end. A second time says when the first one ends it.
    """
    rule = episode.rule
    lane = begin_edit(rule.app, now_ms=now_ms).lane
    if not Episode.objects.filter(pk=episode.pk, status=EpisodeStatus.OPEN).exists():
        raise Refused("this alert is over", remedy="Only an open one is ended.")
    if episode.aspect == Aspect.ERROR:
        raise Refused("this alert ends when the rule can be judged", remedy="Mend the rule, or switch it off.")
    instance = {"rule": rule, "fingerprint": episode.fingerprint, "aspect": episode.aspect}
    waiting = ManualEnd.objects.filter(**instance, at_ms__gt=lane.position_ms).first()
    if waiting is not None:
        return waiting
    at_ms = lane.position_ms + RULE_PERIOD_MS
    end = ManualEnd.objects.create(**instance, at_ms=at_ms, seq=lane.seq, by=by, made_ms=now_ms)
    detail = {"episode": episode.pk, "rule": rule.pk, "app": rule.app_id}
    audit.record("alert.end", rule.name, actor=by, organisation=rule.app.organisation, detail=detail)
    return end


@dataclass(frozen=True, slots=True)
class RuleEdit:
    """Changes of rules of one app under one number of its lane, within the transaction that began it."""

    app: App
    lane: Lane
    now_ms: int

    def create(self, draft: Draft, *, created_by: User | None, group: RuleGroup | None = None, place: int = 0) -> Rule:
        """Create a rule with its first version."""
        times = {"created_ms": self.now_ms, "changed_ms": self.now_ms}
        fields = {**_fields(draft), **times}
        _check_schedule(draft)
        rule = Rule.objects.create(app=self.app, created_by=created_by, group=group, place=place, **fields)
        _check_composite(rule)
        _add_version(rule, self.lane)
        return rule

    def change(self, rule: Rule, fields: Mapping[str, Any], *, is_judged_anew: bool = True) -> Rule:
        """Change fields of a rule; a change that judging cannot see needs no version.

        If it concerns who is told, and when, the open alerts of the rule are routed anew.
        """
        before = _routing_of(rule)
        Rule.objects.filter(pk=rule.pk).update(changed_ms=self.now_ms, **fields)
        rule = Rule.objects.select_related("app__organisation", "group").get(pk=rule.pk)
        if is_judged_anew:
            _check_composite(rule)
            _add_version(rule, self.lane)
        if _routing_of(rule) != before:
            hook.mark(_open_episodes(rule), now_ms=self.now_ms)
        return rule

    def delete(self, rule: Rule) -> Rule:
        """Delete a rule; its last version says so."""
        return self.change(rule, {"deleted_ms": self.now_ms, "enabled": False})


def begin_edit(app: App, *, now_ms: int) -> RuleEdit:
    """Begin changes of the app's rules; call it in a transaction."""
    return RuleEdit(app, _take_number(app, now_ms), now_ms)


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


def _check_schedule(draft: Draft) -> None:
    if draft.schedule_cron:
        check_timing(draft.schedule_cron, draft.schedule_zone, draft.schedule_ms)


def _routing_of(rule: Rule) -> tuple[object, ...]:
    """Return what routes and schedules of the rule's alerts rest on."""
    return rule.name, rule.own_labels, sorted(rule.receivers), schedule_of(rule)


def _open_episodes(rule: Rule) -> list[int]:
    rows = Episode.objects.filter(rule=rule, status=EpisodeStatus.OPEN)
    return list(rows.order_by("pk").values_list("pk", flat=True))


def _check_composite(rule: Rule) -> None:
    """Refuse a composite that does not parse, names a rule that is not there, or names itself through others."""
    if rule.kind != Kind.COMPOSITE:
        return
    numbers = set(rules_of(rule.app).values_list("pk", flat=True))
    unknown = sorted(composites.parse(rule.expr).rules - numbers)
    if unknown:
        raise BadQuery(f"the composite names rules that this app has not: {', '.join(f'#{each}' for each in unknown)}")
    others = rules_of(rule.app).filter(kind=Kind.COMPOSITE).values_list("pk", "expr")
    composites.order({number: composites.parse(expr).rules for number, expr in others})


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


def _fields(draft: Draft) -> dict[str, Any]:
    return {**asdict(draft), "receivers": list(draft.receivers), "by": list(draft.by)}


def _note(rule: Rule, action: str, by: User | None, name: str) -> None:
    organisation, detail = rule.app.organisation, {"rule": rule.pk, "app": rule.app_id}
    audit.record(action, rule.name, actor=by, organisation=organisation, detail=detail, name=name)
