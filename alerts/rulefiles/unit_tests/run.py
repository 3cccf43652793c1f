"""Runs unit tests of rules in memory, with the engine, the automaton and the recording that apps have.

1. The input series are put into a storage in memory.
2. Each group's rules are judged step by step, in order: a recording rule's samples and the series of alerts are put
   into the storage before the next rule.
3. At each check's time the alerts that fire, or the answer of an expression, are compared with what is expected.

Enter by ``failures_of``.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from alerts.expressions import evaluator_of
from alerts.judging import limits as judging_limits
from alerts.judging.answers import Answer, Labels
from alerts.judging.automaton import Input, InstanceState, Timing
from alerts.judging.conditions import Condition, MissingPolicy, classify
from alerts.judging.instances.keys import Aspect, InstanceKey
from alerts.judging.run import run
from alerts.judging.versions import RuleVersion, Steps
from alerts.recording.alert_samples import AlertStretch, series_of, stretches
from alerts.recording.record import RecordedRule, record
from alerts.rulefiles.content import AlertContent, GroupContent, RecordContent, RuleFile
from alerts.rulefiles.threshold_split import split
from alerts.rulefiles.unit_tests.content import AlertCheck, ExpectedAlert, ExpressionCheck, UnitTest, UnitTestFile
from alerts.templating.alert_texts import alert_annotations, alert_labels
from alerts.templating.functions import Query, Sample
from spm.errors import SpmError
from spm.limits import RULE_SERIES_MAX
from spm.query.fake import FakeStorage
from spm.query.promql.engine import Engine
from spm.store.matchers import METRIC_NAME

_TOLERANCE = 1e-12


def failures_of(tests: UnitTestFile, files: Sequence[RuleFile]) -> list[str]:
    """Run all tests; returns what is not as expected, for people."""
    groups = [group for file in files for group in file.groups]
    order = {name: place for place, name in enumerate(tests.group_order)}
    groups.sort(key=lambda group: order.get(group.name, len(order)))
    return [text for test in tests.tests for text in _Run(test, groups, tests.interval_ms).failures()]


@dataclass(slots=True)
class _AlertRule:
    """One alerting rule of a run, and what it says so far."""

    content: AlertContent
    version: RuleVersion
    templates: Mapping[str, str]
    states: Mapping[InstanceKey, InstanceState] = field(default_factory=dict)
    labels: dict[str, Labels] = field(default_factory=dict)
    values: dict[str, float] = field(default_factory=dict)
    query: Query | None = None

    def firing(self) -> list[ExpectedAlert]:
        """Return the alerts that fire."""
        keys = [key for key, state in self.states.items() if state.is_alerting and key.aspect == Aspect.VALUE]
        return [self.alert(key.fingerprint) for key in keys]

    def alert(self, name: str) -> ExpectedAlert:
        """Return an alert with its texts."""
        labels, value = self.labels[name], self.values.get(name, math.nan)
        return ExpectedAlert(
            alert_labels(self.content.name, self.templates, labels, value),
            alert_annotations(self.content.annotations, labels, value, self.query),
        )


class _Run:
    """One test under way."""

    def __init__(self, test: UnitTest, groups: Sequence[GroupContent], interval_ms: int) -> None:
        self._test, self._groups, self._interval_ms = test, groups, interval_ms
        self._storage = FakeStorage()
        for labels, values in test.series:
            self._put(labels, [(index * test.interval_ms, value) for index, value in enumerate(values)])
        self._alerts: dict[tuple[str, int], _AlertRule] = {}

    def failures(self) -> list[str]:
        """Judge all steps, checking alerts on the way and expressions at the end."""
        checks = sorted(self._test.alert_checks, key=lambda check: check.at_ms)
        times = [check.at_ms for check in checks] + [check.at_ms for check in self._test.expression_checks]
        failures = list[str]()
        for at_ms in range(0, max(times, default=0) + 1, self._interval_ms):
            for group in self._groups:
                self._judge(group, Steps(at_ms, at_ms, self._interval_ms))
            now = [check for check in checks if at_ms <= check.at_ms < at_ms + self._interval_ms]
            failures += [text for check in now for text in self._check_alerts(check)]
        return failures + [text for check in self._test.expression_checks for text in self._check_expression(check)]

    def _judge(self, group: GroupContent, steps: Steps) -> None:
        for place, rule in enumerate(group.rules):
            if isinstance(rule, RecordContent):
                content = RecordedRule(rule.name, rule.expr, {**group.labels, **rule.labels}, group.limit)
                samples = record(content, steps, evaluator_of(self._storage))
                for labels, value, is_written in zip(samples.labels, samples.values, samples.written, strict=True):
                    self._put(labels, [(steps.first_ms, float(value[0]))] if is_written[0] else [])
            else:
                self._judge_alert(self._rule(group, place, rule), steps)

    def _rule(self, group: GroupContent, place: int, content: AlertContent) -> _AlertRule:
        key = group.name, place
        if key not in self._alerts:
            parts = split(content.expr)
            condition = Condition(parts.comparator, parts.threshold, None, MissingPolicy.RESOLVE)
            timing = Timing(content.for_ms, content.keep_firing_for_ms, judging_limits.HOLD_MS)
            version = RuleVersion(len(self._alerts), 0, None, parts.expr, condition, timing)
            self._alerts[key] = _AlertRule(content, version, {**group.labels, **content.labels})
        return self._alerts[key]

    def _judge_alert(self, rule: _AlertRule, steps: Steps) -> None:
        answers = dict[str, Answer]()

        def read(expr: str, wanted: Steps) -> Answer:
            answers[expr] = evaluator_of(self._storage)(expr, wanted)
            return answers[expr]

        before = rule.states
        outcome = run([rule.version], steps, before, read=read, active_max=RULE_SERIES_MAX)
        rule.states = outcome.states
        rule.labels |= outcome.labels
        rule.query = lambda expr: self._samples_of(expr, steps.first_ms)
        self._keep_values(rule, answers[rule.version.expr])
        changes = [(each.key, each.at_ms, each.after) for each in outcome.transitions]
        by_key = dict[InstanceKey, list[AlertStretch]]()
        for part in stretches(before, changes, steps):
            by_key.setdefault(part.key, []).append(part)
        for key, parts in by_key.items():
            labels = rule.alert(key.fingerprint).labels
            for series in series_of(parts, labels, len(steps)):
                self._put(series.labels, [(steps.first_ms, series.value)])

    def _keep_values(self, rule: _AlertRule, answer: Answer) -> None:
        """Keep the values of violated series: an alert that keeps firing has its last one."""
        codes = classify(rule.version.condition, answer.values, answer.present)
        for row in np.flatnonzero(codes[:, -1] == Input.VIOLATED):
            rule.values[answer.name(int(row))] = float(answer.values[row, -1])

    def _samples_of(self, expr: str, at_ms: int) -> list[Sample]:
        """Answer the query of a text."""
        result = Engine(self._storage).instant(expr, at_ms)
        rows = np.flatnonzero(result.present[:, 0]).tolist()
        return [Sample(dict(result.labels[row]), float(result.values[row, 0])) for row in rows]

    def _put(self, labels: Mapping[str, str], samples: Sequence[tuple[int, float | None]]) -> None:
        present = [(at_ms, value) for at_ms, value in samples if value is not None]
        if present:
            rest = {name: text for name, text in labels.items() if name != METRIC_NAME}
            times, values = [at_ms for at_ms, _ in present], np.array([value for _, value in present], np.float64)
            self._storage.add(labels.get(METRIC_NAME, ""), rest, times, values)

    def _check_alerts(self, check: AlertCheck) -> list[str]:
        rules = [rule for rule in self._alerts.values() if rule.content.name == check.name]
        actual = _sorted([alert for rule in rules for alert in rule.firing()])
        wanted = _sorted([_with_name(alert, check.name) for alert in check.alerts])
        if actual == wanted:
            return []
        return [f"{self._test.name}, alert {check.name} at {_time(check.at_ms)}: got {actual}, wanted {wanted}"]

    def _check_expression(self, check: ExpressionCheck) -> list[str]:
        what = f"{self._test.name}, {check.expr} at {_time(check.at_ms)}"
        try:
            result = Engine(self._storage).instant(check.expr, check.at_ms)
        except SpmError as error:
            return [f"{what}: {error}"]
        if result.kind == "scalar":
            samples: list[tuple[Mapping[str, str], float]] = [({}, float(result.values[0, 0]))]
        else:
            rows = np.flatnonzero(result.present[:, 0]).tolist()
            samples = [(dict(result.labels[row]), float(result.values[row, 0])) for row in rows]
        actual, wanted = _by_labels(samples), _by_labels(check.samples)
        is_same = len(actual) == len(wanted) and all(
            left[0] == right[0] and _close(left[1], right[1]) for left, right in zip(actual, wanted, strict=True)
        )
        return [] if is_same else [f"{what}: got {actual}, wanted {wanted}"]


def _with_name(alert: ExpectedAlert, name: str) -> ExpectedAlert:
    return ExpectedAlert({**alert.labels, "alertname": name}, alert.annotations)


def _sorted(alerts: Sequence[ExpectedAlert]) -> list[tuple[dict[str, str], dict[str, str]]]:
    pairs = [(dict(alert.labels), dict(alert.annotations)) for alert in alerts]
    return sorted(pairs, key=lambda pair: (sorted(pair[0].items()), sorted(pair[1].items())))


def _by_labels(samples: Sequence[tuple[Mapping[str, str], float]]) -> list[tuple[dict[str, str], float]]:
    return sorted(((dict(labels), value) for labels, value in samples), key=lambda pair: sorted(pair[0].items()))


def _close(left: float, right: float) -> bool:
    return math.isclose(left, right, rel_tol=_TOLERANCE) or (math.isnan(left) and math.isnan(right))


def _time(at_ms: int) -> str:
    return f"{at_ms / 1000:g}s"
