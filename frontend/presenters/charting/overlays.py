"""What happened in an app during the range of a chart: alerts as bands and thresholds, changes as events.

A chart shows the alerts of rules that read one of its metrics, unless its selectors exclude the alert's series. Events
are those that people and programs posted, and what the audit log has of the app: rules, retractions, runs that were
rolled back, settings. Enter by
``read_overlays``.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Q

from alerts.judging.instances.keys import Aspect
from alerts.judging.kinds import Kind, value_expr
from alerts.judging.reconciliation import EpisodeStatus
from alerts.models import Episode, Rule
from frontend.presenters.periods import selectors_of
from spm.accounts.models import App, AuditEntry
from spm.clock import moment
from spm.errors import BadQuery
from spm.events.models import Event
from spm.query.promql.planning import plan
from spm.query.promql.planning.planner import parse
from spm.query.request.batches import METRIC_NAME

CHART_BANDS_MAX = 200  # alerts, and as many events, that the charts of a range mark; people see no more
_ENTRIES_READ = 2_000  # of the organisation's log within the range, newest first
_THRESHOLDS_MAX = 3
_SCALES = (  # functions whose values are on another scale than those of the metric
    re.compile(r"\b(?:i?rate|increase|i?delta|deriv)\s*\("),
    re.compile(
        r"\b(?:absent|present|count|changes|resets|group|timestamp)(?:_over_time|_values)?\s*(?:by|without)?\s*\("
    ),
)
_OWN_SCALES = (Kind.ANOMALY, Kind.HEARTBEAT, Kind.COMPOSITE)  # of spreads, of seconds, of nothing
_OF_RULES = {"rule.create": "rule created", "rule.change": "rule changed", "rule.delete": "rule deleted"}
_OF_APPS = {
    "retract": "retracted",
    "undo": "retraction undone",
    "retention changed": "retention changed",
    "agent settings": "agent settings",
    "roll back": "rolled back",
}


@dataclass(frozen=True, slots=True)
class Overlays:
    """The alerts, rules and events of an app in a range."""

    episodes: Sequence[Episode]
    rules: Sequence[Rule]
    events: Sequence[dict[str, Any]]

    def of_chart(self, exprs: Sequence[str]) -> dict[str, Any]:
        """Return the bands and thresholds of a chart of these expressions (without variables), ready for JSON."""
        selectors = [selector for expr in exprs for selector in _selectors(expr)]
        bands = [
            _band(each)
            for each in self.episodes
            if _judged(each.rule) in exprs or concerns(selectors, each.rule.expr, each.labels)
        ]
        alike = [
            rule
            for rule in self.rules
            if rule.kind not in _OWN_SCALES
            and (
                _judged(rule) in exprs
                or (any(_is_alike(expr, rule) for expr in exprs) and concerns(selectors, rule.expr, {}))
            )
        ]
        thresholds = {
            rule.threshold: {"value": rule.threshold, "name": f"{rule.name}: {rule.comparator} {rule.threshold:g}"}
            for rule in alike
        }
        return {"alerts": bands, "thresholds": list(thresholds.values())[:_THRESHOLDS_MAX]}


def read_overlays(app: App, start_ms: int, end_ms: int) -> Overlays:
    """Read what happened in a range."""
    rules = {rule.pk: rule for rule in Rule.objects.filter(app=app)}
    episodes = (
        Episode.objects.filter(rule__app=app, rule__deleted_ms=None, start_ms__lt=end_ms)
        .filter(Q(end_ms=None) | Q(end_ms__gt=start_ms))
        .filter(status__in=(EpisodeStatus.OPEN, EpisodeStatus.ENDED))
        .exclude(aspect=Aspect.ERROR)
        .select_related("rule")[:CHART_BANDS_MAX]
    )
    entries = AuditEntry.objects.filter(
        organisation=app.organisation_id,
        action__in=(*_OF_RULES, *_OF_APPS),
        at__gte=moment(start_ms),
        at__lt=moment(end_ms),
    )[:_ENTRIES_READ]
    events = [event for entry in entries if (event := _event(app, entry, rules))]
    posted = Event.objects.filter(app=app, is_posted=True, at_ms__gte=start_ms, at_ms__lt=end_ms)
    events += [{"at": each.at_ms, "text": _posted_text(each)} for each in posted[:CHART_BANDS_MAX]]
    active = [rule for rule in rules.values() if rule.enabled and rule.deleted_ms is None and rule.comparator]
    return Overlays(list(episodes), active, sorted(events, key=lambda event: -event["at"])[:CHART_BANDS_MAX])


def concerns(selectors: Sequence[plan.Selector], rule_expr: str, labels: Mapping[str, str]) -> bool:
    """Whether a chart of these selectors may show the series of a rule that has these labels."""
    metrics = {matcher.value for selector in _selectors(rule_expr) for matcher in selector.matchers if _names(matcher)}
    return any(
        any(_names(matcher) and matcher.value in metrics for matcher in selector.matchers)
        and not any(
            matcher.op == "=" and matcher.name in labels and labels[matcher.name] != matcher.value
            for matcher in selector.matchers
        )
        for selector in selectors
    )


def _names(matcher: Any) -> bool:
    return bool(matcher.name == METRIC_NAME and matcher.op == "=")


def _selectors(expr: str) -> Sequence[plan.Selector]:
    try:
        return list(selectors_of(parse(expr)))
    except BadQuery:
        return ()


def _is_alike(expr: str, rule: Rule) -> bool:
    """Whether the values of a rule and of a chart have one scale, as far as their texts say."""
    judged = rule.expr if rule.kind == Kind.FORECAST else _judged(rule)  # a forecast is on the scale of what it reads
    return "/" not in expr + judged and all(bool(each.search(expr)) == bool(each.search(judged)) for each in _SCALES)


def _judged(rule: Rule) -> str:
    """Return the expression whose values the rule compares, as the page of the rule draws it."""
    return rule.expr if rule.kind == Kind.THRESHOLD else value_expr(Kind(rule.kind), rule.expr, rule.parameters)


def _band(episode: Episode) -> dict[str, Any]:
    return {
        "rule": episode.rule_id,
        "name": episode.rule.name,
        "labels": episode.labels,
        "severity": episode.severity,
        "start": episode.start_ms,
        "end": episode.end_ms,
        "value": episode.last_value,
    }


def _event(app: App, entry: AuditEntry, rules: Mapping[int, Rule]) -> dict[str, Any] | None:
    """Write an entry of the log as an event; ``None`` for one of another app."""
    detail = entry.detail
    if entry.action in _OF_RULES:
        is_ours, text = detail.get("rule") in rules, f"{_OF_RULES[entry.action]}: {entry.subject}"
    else:
        is_ours = detail.get("app") == app.pk or app.pk in detail.get("apps", ())
        text = f"{_OF_APPS[entry.action]}: {detail.get('reason') or entry.subject}"
    by = f" by {entry.actor_name}" if entry.actor_name else ""
    return {"at": round(entry.at.timestamp() * 1000), "text": text + by} if is_ours else None


def _posted_text(event: Event) -> str:
    return f"{event.kind}: {event.text}" + (f" by {event.author}" if event.author else "")
