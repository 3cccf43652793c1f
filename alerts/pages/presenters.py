"""Turns rows into what the alerting pages draw: a rule with its status."""

from dataclasses import dataclass, replace
from typing import Any

from django.db.models import Count, F, Q, QuerySet

from alerts.backtesting.backtests import version_of
from alerts.durations import spell
from alerts.history.weeks import Week, read_weeks
from alerts.judging.automaton import Phase
from alerts.judging.kinds import Kind
from alerts.models import AlertEvent, Aspect, Episode, Instance, Lane, Rule
from alerts.rulebook import rules_of
from spm.accounts.models import App
from spm.limits import RULE_PERIOD_MS

RULES_SHOWN = 100
RULE_STATES = ("firing", "error", "pending", "ok", "new", "off")
_ORDER = {"firing": 0, "error": 1, "pending": 2}
EVENTS_SHOWN = 100
EPISODES_SHOWN = 20


@dataclass(frozen=True, slots=True)
class RuleRow:
    """A rule, the number of its firing and pending instances, and its status in one word.

    ``judged_ms`` is the step up to which its app is judged, None before the first one; ``waiting`` says why the next
    step is not judged yet; ``week`` is read for lists alone.
    """

    rule: Rule
    firing: int
    pending: int
    error: str
    status: str
    condition: str
    judged_ms: int | None
    waiting: str
    week: Week | None = None


@dataclass(frozen=True, slots=True)
class RulePage:
    """A part of the rules that a filter leaves. ``following``: where the next part begins; 0 if there is none."""

    rows: list[RuleRow]
    total: int
    matching: int
    following: int


def list_rules(app: App, now_ms: int, *, text: str = "", state: str = "", start: int = 0) -> RulePage:
    """List rules whose name or expression contains the text and that are in the state, firing ones first."""
    chosen = rules_of(app).filter(Q(name__icontains=text) | Q(expr__icontains=text))
    heads = _counted(chosen).only("name", "enabled", "created_ms")
    lane = Lane.objects.filter(app=app).first()
    failing = set(Instance.objects.filter(rule__app=app, aspect=Aspect.ERROR).values_list("rule", flat=True))
    states = {
        rule: _status(rule, rule.firing, rule.pending, "x" * (rule.pk in failing), is_judged=_is_judged(rule, lane))
        for rule in heads
    }
    matching = [rule for rule, status in states.items() if state in ("", status)]
    matching.sort(key=lambda rule: (_ORDER.get(states[rule], len(_ORDER)), rule.name.lower()))
    shown = [rule.pk for rule in matching[start : start + RULES_SHOWN]]
    weeks = read_weeks(shown, now_ms)
    rows = {row.rule.pk: replace(row, week=weeks[row.rule.pk]) for row in _rule_rows(Rule.objects.filter(pk__in=shown))}
    following = start + RULES_SHOWN if start + RULES_SHOWN < len(matching) else 0
    return RulePage([rows[pk] for pk in shown if pk in rows], rules_of(app).count(), len(matching), following)


def row_of(rule: Rule) -> RuleRow:
    """Present one rule."""
    return _rule_rows(Rule.objects.filter(pk=rule.pk))[0]


def condition_text(rule: Rule) -> str:
    """Write the rule's condition: ``> 90 for 5m``."""
    comparison = f"{rule.comparator} {rule.threshold:g}" if rule.comparator else "has an answer"
    duration = f" for {spell(rule.for_ms)}" if rule.for_ms else ""
    return comparison + duration


def instances_of(rule: Rule) -> QuerySet[Instance]:
    """Select the instances of a rule that are not ok, without the one of its errors."""
    return Instance.objects.filter(rule=rule).exclude(aspect=Aspect.ERROR)


def drawn_expr_of(rule: Rule) -> str:
    """Return the expression whose values the rule compares; empty for a composite, which has none."""
    version = version_of(rule)
    return "" if version.kind is Kind.COMPOSITE else version.value_expr


def events_of(rule: Rule) -> QuerySet[AlertEvent]:
    """Select the latest changes of phase of a rule's instances that still hold."""
    events = AlertEvent.objects.filter(rule=rule, superseded_seq=None).exclude(before=F("state"))
    return events[:EVENTS_SHOWN]


def episodes_of(rule: Rule) -> QuerySet[Episode]:
    """Select the latest alerts of a rule."""
    return Episode.objects.filter(rule=rule)[:EPISODES_SHOWN]


def _counted(rules: QuerySet[Rule]) -> QuerySet[Any]:
    is_error = Q(instances__aspect=Aspect.ERROR)
    firing = Count("instances", filter=Q(instances__phase__in=(Phase.FIRING, Phase.RECOVERING)) & ~is_error)
    pending = Count("instances", filter=Q(instances__phase=Phase.PENDING) & ~is_error)
    return rules.annotate(firing=firing, pending=pending)


def _rule_rows(rules: QuerySet[Rule]) -> list[RuleRow]:
    chosen = list(_counted(rules).select_related("app", "created_by"))
    lanes = {lane.app_id: lane for lane in Lane.objects.filter(app__in={rule.app_id for rule in chosen})}
    failing = Instance.objects.filter(rule__in=chosen, aspect=Aspect.ERROR).values_list("rule", "detail")
    errors = {number: detail or "the expression could not be evaluated" for number, detail in failing}
    return [
        _rule_row(rule, rule.firing, rule.pending, lanes.get(rule.app_id), errors.get(rule.pk, "")) for rule in chosen
    ]


def _rule_row(rule: Rule, firing: int, pending: int, lane: Lane | None, error: str) -> RuleRow:
    is_judged = _is_judged(rule, lane)
    status = _status(rule, firing, pending, error, is_judged=is_judged)
    judged_ms = lane.position_ms if lane is not None and is_judged else None
    waiting = lane.waiting if lane is not None else ""
    return RuleRow(rule, firing, pending, error, status, condition_text(rule), judged_ms, waiting)


def _is_judged(rule: Rule, lane: Lane | None) -> bool:
    return lane is not None and lane.position_ms > rule.created_ms - RULE_PERIOD_MS


def _status(rule: Rule, firing: int, pending: int, error: str, *, is_judged: bool) -> str:
    if not rule.enabled:
        return "off"
    if firing:
        return "firing"
    if error:
        return "error"
    return "pending" if pending else "ok" if is_judged else "new"
