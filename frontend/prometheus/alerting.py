"""The endpoints `rules` and `alerts`: rules and their alerts in Prometheus' form, for Grafana and other readers.

Rules of files have their file and group. All others of an app form one group, because they are evaluated on one grid.
The threshold of a rule is written as part of its query, so that the query can be pasted and run. An alert has the
labels of its series and of its rule, without the metric's name, and its value at the step that was judged last.
"""

import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from alerts.judging.automaton import ALERTING, Phase
from alerts.judging.kinds import Kind, value_expr
from alerts.models import Aspect, Instance, Lane, RecordingRule, Rule, RuleGroup, SeriesLane
from alerts.newest_texts import NewestData, newest_data
from alerts.rulebook import rules_of
from alerts.rulefiles.threshold_split import join
from alerts.templating.alert_texts import alert_annotations, alert_labels
from frontend.prometheus.endpoint import Call, json_endpoint
from frontend.prometheus.parameters import Parameters
from spm.accounts.models import App
from spm.errors import BadQuery, SpmError
from spm.limits import RULE_PERIOD_MS
from spm.query.formats import prometheus
from spm.store.matchers import Matcher, mask

log = logging.getLogger("spm.alerts")
FILE = "alert rules"  # of rules that came from no file
_WEIGHT = {"firing": 2, "pending": 1, "inactive": 0}


@dataclass(frozen=True, slots=True)
class _Group:
    """A group of rules as Prometheus shows it."""

    file: str
    name: str
    interval_ms: int = RULE_PERIOD_MS
    limit: int = 0
    rules: list[Rule | RecordingRule] = field(default_factory=list)

    @property
    def token(self) -> str:
        """What names the group in the parameter ``group_next_token``."""
        return hashlib.sha1(f"{self.file};{self.name}".encode(), usedforsecurity=False).hexdigest()


@dataclass(frozen=True, slots=True)
class _Evaluation:
    """The last evaluation of all rules of one type: its step, and how long it took; they share their reads."""

    at_ms: int = 0
    took_s: float = 0.0

    def entries(self) -> dict[str, Any]:
        """Return it as Prometheus writes it."""
        return {"evaluationTime": self.took_s, "lastEvaluation": prometheus.rfc3339(self.at_ms)}


@dataclass(frozen=True, slots=True)
class _Evaluated:
    """The last evaluations of an app: of its alerting rules, and of its recording rules."""

    judging: _Evaluation
    recording: _Evaluation

    def of(self, group: _Group) -> _Evaluation:
        """Return that of a group: with rules of both types, of the one that came last, and the time of both."""
        is_judged = any(isinstance(rule, Rule) for rule in group.rules)
        if is_judged and any(isinstance(rule, RecordingRule) for rule in group.rules):
            both = (self.judging, self.recording)
            return _Evaluation(max(each.at_ms for each in both), sum(each.took_s for each in both))
        return self.judging if is_judged else self.recording


@json_endpoint
def rules(call: Call) -> bytes:
    """`rules`: lists the rules of the app in their groups, with their alerts."""
    parameters, app = call.parameters, App.objects.get(pk=call.caller.app_id)
    kind = parameters.text("type") or ""
    if kind not in ("", "alert", "record"):
        raise BadQuery(f'invalid parameter "type": not supported value "{kind[:40]}"')
    limit, token = parameters.whole_number("group_limit") or 0, parameters.text("group_next_token") or ""
    if token and not limit:
        raise BadQuery('invalid parameter "group_limit": it must be set in order to paginate over the groups')
    evaluated = _evaluated(app)
    selected = _selected(_groups(app), kind, parameters, parameters.selectors())
    page, following = _page(selected, limit, token)
    is_with_alerts = not parameters.flag("exclude_alerts")
    newest = _newest(call, app, [rule for group in page for rule in group.rules]) if is_with_alerts else NewestData()
    data: dict[str, Any] = {"groups": [_group(group, evaluated, newest, alerts=is_with_alerts) for group in page]}
    return prometheus.success(data if following is None else {**data, "groupNextToken": following.token})


@json_endpoint
def alerts(call: Call) -> bytes:
    """`alerts`: lists the pending and firing alerts."""
    app = App.objects.get(pk=call.caller.app_id)
    alerting = [rule for group in _groups(app) for rule in group.rules if isinstance(rule, Rule)]
    newest = _newest(call, app, alerting)
    return prometheus.success({"alerts": [_alert(rule, each, newest) for rule in alerting for each in _active(rule)]})


def _evaluated(app: App) -> _Evaluated:
    judged = Lane.objects.filter(app=app).values_list("position_ms", "took_us").first()
    recorded = SeriesLane.objects.filter(app=app).values_list("recorded_ms", "took_us").first()
    judging, recording = (_Evaluation(row[0], row[1] / 1e6) if row else _Evaluation() for row in (judged, recorded))
    return _Evaluated(judging, recording)


def _newest(call: Call, app: App, rules: Iterable[Rule | RecordingRule]) -> NewestData:
    """Read what the alerts of these rules show of data, as a query; without it they show their last transition."""
    active = [rule for rule in rules if isinstance(rule, Rule) and _active(rule)]
    lane = Lane.objects.filter(app=app).first()
    if not active or lane is None:
        return NewestData()
    try:
        with call.admit():
            return newest_data(lane, app.organisation_id, active)
    except SpmError as error:
        log.info("the alerts of app %d are listed without their newest values: %s", app.pk, error)
        return NewestData()


def _groups(app: App) -> list[_Group]:
    """Return all groups of the app with their rules, in the order of their files and names."""
    own = _Group(FILE, app.name)
    groups = {
        row.pk: _Group(row.file, row.name, row.interval_ms or RULE_PERIOD_MS, row.limit)
        for row in RuleGroup.objects.filter(app=app)
    }
    recording = RecordingRule.objects.filter(app=app).select_related("group")
    alerting = rules_of(app).filter(enabled=True).select_related("group").prefetch_related("instances")
    every: list[Rule | RecordingRule] = [*alerting, *recording]
    for rule in sorted(every, key=lambda rule: (rule.place, rule.pk)):
        (groups[rule.group_id] if rule.group_id else own).rules.append(rule)
    return sorted([own, *groups.values()], key=lambda group: (group.file, group.name))


def _selected(
    groups: Iterable[_Group], kind: str, parameters: Parameters, matching: Sequence[Sequence[Matcher]]
) -> Iterator[_Group]:
    """Yield the groups with those of their rules that the parameters ask for, and every group's token."""
    for group in groups:
        wanted = [rule for rule in group.rules if _is_selected(rule, group, kind, parameters, matching)]
        yield _Group(group.file, group.name, group.interval_ms, group.limit, wanted)


def _page(groups: Iterable[_Group], limit: int, token: str) -> tuple[list[_Group], _Group | None]:
    """Return the groups with rules from the token on, at most ``limit`` (0: all), and the next one after them."""
    page, is_reached = list[_Group](), not token
    for group in groups:
        is_reached = is_reached or group.token == token
        if not is_reached or not group.rules:
            continue
        if limit and len(page) == limit:
            return page, group
        page.append(group)
    if not is_reached:
        raise BadQuery(f"invalid group_next_token '{token[:60]}'. were rule groups changed?")
    return page, None


def _is_selected(
    rule: Rule | RecordingRule,
    group: _Group,
    kind: str,
    parameters: Parameters,
    matching: Sequence[Sequence[Matcher]],
) -> bool:
    if kind and kind != ("alert" if isinstance(rule, Rule) else "record"):
        return False
    filters = (("rule_name[]", rule.name), ("rule_group[]", group.name), ("file[]", group.file))
    if any(parameters.every(parameter) and name not in parameters.every(parameter) for parameter, name in filters):
        return False
    return not matching or any(_satisfies(_labels_of(rule), matchers) for matchers in matching)


def _satisfies(labels: Mapping[str, str], matchers: Sequence[Matcher]) -> bool:
    return all(bool(mask([labels.get(matcher.name, "")], matcher)[0]) for matcher in matchers)


def _group(group: _Group, evaluated: _Evaluated, newest: NewestData, *, alerts: bool) -> dict[str, Any]:
    return {
        "name": group.name,
        "file": group.file,
        "rules": [
            _alerting(rule, evaluated.judging, newest, alerts=alerts)
            if isinstance(rule, Rule)
            else _recording(rule, evaluated.recording)
            for rule in group.rules
        ],
        "interval": group.interval_ms / 1000,
        "limit": group.limit,
        **evaluated.of(group).entries(),
    }


def _recording(rule: RecordingRule, last: _Evaluation) -> dict[str, Any]:
    return {
        "name": rule.name,
        "query": rule.expr,
        "labels": _labels_of(rule),
        "health": _health(rule.error, last.at_ms),
        "lastError": rule.error,
        **last.entries(),
        "type": "recording",
    }


def _alerting(rule: Rule, last: _Evaluation, newest: NewestData, *, alerts: bool) -> dict[str, Any]:
    alert_entries = [_alert(rule, each, newest) for each in _active(rule)]
    error = "".join(each.detail for each in rule.instances.all() if each.aspect == Aspect.ERROR)
    return {
        "state": max((each["state"] for each in alert_entries), key=_WEIGHT.__getitem__, default="inactive"),
        "name": rule.name,
        "query": _query(rule),
        "duration": rule.for_ms / 1000,
        "keepFiringFor": rule.keep_firing_for_ms / 1000,
        "labels": _labels_of(rule),
        "annotations": rule.annotations,
        "alerts": alert_entries if alerts else [],
        "health": _health(error, last.at_ms),
        "lastError": error,
        **last.entries(),
        "type": "alerting",
    }


def _health(error: str, judged_ms: int) -> str:
    return "err" if error else "ok" if judged_ms else "unknown"


def _active(rule: Rule) -> list[Instance]:
    values = (instance for instance in rule.instances.all() if instance.aspect == Aspect.VALUE)
    return [instance for instance in values if instance.phase != Phase.CLOSED]


def _alert(rule: Rule, instance: Instance, newest: NewestData) -> dict[str, Any]:
    begun = float("nan") if instance.value is None else instance.value
    value = newest.values.get(rule.pk, {}).get(instance.fingerprint, begun)
    entry = {
        "labels": alert_labels(rule.name, _labels_of(rule), instance.labels, begun),
        "annotations": alert_annotations(rule.annotations, instance.labels, value, newest.query),
        "state": "firing" if instance.phase in ALERTING else "pending",
        "activeAt": prometheus.rfc3339(instance.active_ms),
        "value": prometheus.exponent(value),
    }
    if instance.phase == Phase.RECOVERING:
        entry["keepFiringSince"] = prometheus.rfc3339(instance.since_ms)
    return entry


def _labels_of(rule: Rule | RecordingRule) -> dict[str, str]:
    return rule.alert_labels if isinstance(rule, Rule) else {**rule.group.labels, **rule.labels}


def _query(rule: Rule) -> str:
    condition = rule.condition
    return join(value_expr(Kind(rule.kind), rule.expr, rule.parameters), condition.comparator, condition.threshold)
