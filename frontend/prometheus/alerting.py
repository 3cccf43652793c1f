"""`rules` and `alerts`: the app's alert rules and what they found, in Prometheus' form, for Grafana's alert list.

All rules of an app are one group, judged on one grid. A threshold becomes part of the query that is shown, so that it
can be pasted and asked. Labels of an alert are those of its series, the rule's name and its severity.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from alerts import rules as states
from alerts.models import Alert, Rule
from alerts.rulebook import rules_of
from frontend.prometheus.endpoint import Call, names_endpoint
from frontend.prometheus.parameters import Parameters
from spm.accounts.models import App
from spm.errors import BadQuery
from spm.limits import RULE_PERIOD_MS
from spm.query.formats import prometheus
from spm.store.matchers import Matcher, mask

FILE = "alert rules"  # Prometheus groups by file; here they stand in the database
_SHOWN = (states.State.PENDING, states.State.FIRING)
_WEIGHT = {"firing": 2, "pending": 1, "inactive": 0}


@names_endpoint
def rules(call: Call) -> bytes:
    """`rules`: the rules of the app, with their alerts."""
    asked, app = call.asked, App.objects.get(pk=call.caller.app_id)
    kind = asked.text("type") or "alert"
    if kind not in ("alert", "record"):
        raise BadQuery(f'invalid parameter "type": not supported value "{kind[:40]}"')
    matching = asked.selectors()
    chosen = [rule for rule in _rules(app) if kind == "alert" and _is_selected(rule, app, asked, matching)]
    told = [_rule(rule, alerts=not asked.flag("exclude_alerts")) for rule in chosen]
    judged = max((rule.evaluated_ms for rule in chosen), default=0)
    group = {
        "name": app.name,
        "file": FILE,
        "rules": told,
        "interval": RULE_PERIOD_MS / 1000,
        "limit": 0,
        "lastEvaluation": prometheus.rfc3339(judged),
    }
    return prometheus.success({"groups": [group] if told else []})


@names_endpoint
def alerts(call: Call) -> bytes:
    """`alerts`: what is pending or firing."""
    app = App.objects.get(pk=call.caller.app_id)
    return prometheus.success({"alerts": [_alert(rule, each) for rule in _rules(app) for each in _active(rule)]})


def _rules(app: App) -> Sequence[Rule]:
    return list(rules_of(app).filter(enabled=True).prefetch_related("alerts"))


def _is_selected(rule: Rule, app: App, asked: Parameters, matching: Sequence[Sequence[Matcher]]) -> bool:
    named = (("rule_name[]", rule.name), ("rule_group[]", app.name), ("file[]", FILE))
    if any(asked.every(parameter) and name not in asked.every(parameter) for parameter, name in named):
        return False
    return not matching or any(_satisfies(_labels_of(rule), matchers) for matchers in matching)


def _satisfies(labels: Mapping[str, str], matchers: Sequence[Matcher]) -> bool:
    return all(bool(mask([labels.get(matcher.name, "")], matcher)[0]) for matcher in matchers)


def _rule(rule: Rule, *, alerts: bool) -> dict[str, Any]:
    found = [_alert(rule, each) for each in _active(rule)]
    return {
        "state": max((each["state"] for each in found), key=_WEIGHT.__getitem__, default="inactive"),
        "name": rule.name,
        "query": _query(rule),
        "duration": rule.for_ms / 1000,
        "keepFiringFor": rule.keep_firing_for_ms / 1000,
        "labels": _labels_of(rule),
        "annotations": {},
        "alerts": found if alerts else [],
        "health": "err" if rule.error else "ok" if rule.evaluated_ms else "unknown",
        "lastError": rule.error,
        "lastEvaluation": prometheus.rfc3339(rule.evaluated_ms),
        "type": "alerting",
    }


def _active(rule: Rule) -> list[Alert]:
    return [alert for alert in rule.alerts.all() if alert.state in _SHOWN]


def _alert(rule: Rule, alert: Alert) -> dict[str, Any]:
    standing = alert.series_state
    found = {
        "labels": {**alert.labels, "alertname": rule.name, **_labels_of(rule)},
        "annotations": {},
        "state": alert.state,
        "activeAt": prometheus.rfc3339(standing.episode_ms),
        "value": prometheus.exponent(standing.value),
    }
    if standing.well_since_ms is not None:
        found["keepFiringSince"] = prometheus.rfc3339(standing.well_since_ms)
    return found


def _labels_of(rule: Rule) -> dict[str, str]:
    return {"severity": rule.severity}


def _query(rule: Rule) -> str:
    return f"({rule.expr}) {rule.comparator} {prometheus.number(rule.threshold)}" if rule.comparator else rule.expr
