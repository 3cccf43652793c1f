"""The endpoints `rules` and `alerts`: alert rules and their alerts in Prometheus' form, for Grafana's alert list.

All rules of an app form one group, because they are evaluated on one grid. The threshold of a rule is written as part
of its query, so that the query can be pasted and run. An alert has the labels of its series, the rule's name and its
severity.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from alerts.judging.automaton import ALERTING, Phase
from alerts.models import Aspect, Instance, Lane, Rule
from alerts.rulebook import rules_of
from frontend.prometheus.endpoint import Call, json_endpoint
from frontend.prometheus.parameters import Parameters
from spm.accounts.models import App
from spm.errors import BadQuery
from spm.limits import RULE_PERIOD_MS
from spm.query.formats import prometheus
from spm.store.matchers import Matcher, mask

FILE = "alert rules"  # Prometheus groups rules by file; here they are in the database
_WEIGHT = {"firing": 2, "pending": 1, "inactive": 0}


@json_endpoint
def rules(call: Call) -> bytes:
    """`rules`: lists the rules of the app, with their alerts."""
    parameters, app = call.parameters, App.objects.get(pk=call.caller.app_id)
    kind = parameters.text("type") or "alert"
    if kind not in ("alert", "record"):
        raise BadQuery(f'invalid parameter "type": not supported value "{kind[:40]}"')
    matching = parameters.selectors()
    selected = [rule for rule in _rules(app) if kind == "alert" and _is_selected(rule, app, parameters, matching)]
    judged_ms = Lane.objects.filter(app=app).values_list("position_ms", flat=True).first() or 0
    entries = [_rule(rule, judged_ms, alerts=not parameters.flag("exclude_alerts")) for rule in selected]
    group = {
        "name": app.name,
        "file": FILE,
        "rules": entries,
        "interval": RULE_PERIOD_MS / 1000,
        "limit": 0,
        "lastEvaluation": prometheus.rfc3339(judged_ms),
    }
    return prometheus.success({"groups": [group] if entries else []})


@json_endpoint
def alerts(call: Call) -> bytes:
    """`alerts`: lists the pending and firing alerts."""
    app = App.objects.get(pk=call.caller.app_id)
    return prometheus.success({"alerts": [_alert(rule, each) for rule in _rules(app) for each in _active(rule)]})


def _rules(app: App) -> Sequence[Rule]:
    return list(rules_of(app).filter(enabled=True).prefetch_related("instances"))


def _is_selected(rule: Rule, app: App, parameters: Parameters, matching: Sequence[Sequence[Matcher]]) -> bool:
    filters = (("rule_name[]", rule.name), ("rule_group[]", app.name), ("file[]", FILE))
    if any(parameters.every(parameter) and name not in parameters.every(parameter) for parameter, name in filters):
        return False
    return not matching or any(_satisfies(_labels_of(rule), matchers) for matchers in matching)


def _satisfies(labels: Mapping[str, str], matchers: Sequence[Matcher]) -> bool:
    return all(bool(mask([labels.get(matcher.name, "")], matcher)[0]) for matcher in matchers)


def _rule(rule: Rule, judged_ms: int, *, alerts: bool) -> dict[str, Any]:
    alert_entries = [_alert(rule, each) for each in _active(rule)]
    errors = [each.detail for each in rule.instances.all() if each.aspect == Aspect.ERROR]
    return {
        "state": max((each["state"] for each in alert_entries), key=_WEIGHT.__getitem__, default="inactive"),
        "name": rule.name,
        "query": _query(rule),
        "duration": rule.for_ms / 1000,
        "keepFiringFor": rule.keep_firing_for_ms / 1000,
        "labels": _labels_of(rule),
        "annotations": {},
        "alerts": alert_entries if alerts else [],
        "health": "err" if errors else "ok" if judged_ms else "unknown",
        "lastError": "".join(errors),
        "lastEvaluation": prometheus.rfc3339(judged_ms),
        "type": "alerting",
    }


def _active(rule: Rule) -> list[Instance]:
    return [instance for instance in rule.instances.all() if instance.aspect == Aspect.VALUE]


def _alert(rule: Rule, instance: Instance) -> dict[str, Any]:
    value = float("nan") if instance.value is None else instance.value
    entry = {
        "labels": {**instance.labels, "alertname": rule.name, **_labels_of(rule)},
        "annotations": {},
        "state": "firing" if instance.phase in ALERTING else "pending",
        "activeAt": prometheus.rfc3339(instance.active_ms),
        "value": prometheus.exponent(value),
    }
    if instance.phase == Phase.RECOVERING:
        entry["keepFiringSince"] = prometheus.rfc3339(instance.since_ms)
    return entry


def _labels_of(rule: Rule) -> dict[str, str]:
    return {"severity": rule.severity}


def _query(rule: Rule) -> str:
    return f"({rule.expr}) {rule.comparator} {prometheus.number(rule.threshold)}" if rule.comparator else rule.expr
