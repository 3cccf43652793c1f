"""Test files of Prometheus' rule unit tests, as values. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from alerts.rulefiles import nodes
from alerts.rulefiles.content import Place
from alerts.rulefiles.unit_tests.notation import series_labels, series_values
from spm.errors import BadQuery
from spm.query.formats.prometheus import duration_ms

_MINUTE_MS = 60_000
_FILE = {"rule_files", "evaluation_interval", "group_eval_order", "tests", "fuzzy_compare"}
_TEST = {"name", "interval", "input_series", "alert_rule_test", "promql_expr_test", "external_labels", "external_url"}


@dataclass(frozen=True, slots=True)
class ExpectedAlert:
    """An alert that must fire: its labels and annotations."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AlertCheck:
    """The alerts of a name that fire at a time, and no others."""

    at_ms: int
    name: str
    alerts: tuple[ExpectedAlert, ...]


@dataclass(frozen=True, slots=True)
class ExpressionCheck:
    """The answer of an expression at a time: labels and values."""

    at_ms: int
    expr: str
    samples: tuple[tuple[Mapping[str, str], float], ...]


@dataclass(frozen=True, slots=True)
class UnitTest:
    """One test: series with a value at each interval, and what must be true of them."""

    name: str
    interval_ms: int
    series: tuple[tuple[Mapping[str, str], tuple[float | None, ...]], ...]
    alert_checks: tuple[AlertCheck, ...]
    expression_checks: tuple[ExpressionCheck, ...]
    external_labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class UnitTestFile:
    """A file of tests: the rule files that it tests, by their paths, and how often these are judged."""

    rule_files: tuple[str, ...]
    interval_ms: int
    group_order: tuple[str, ...]
    tests: tuple[UnitTest, ...]


def parse_tests(text: str, file: str) -> UnitTestFile:
    """Parse a test file; raises ``BadRuleFile`` or ``BadMessage``."""
    place = Place(file, 1)
    nodes.compose(text, file)  # refuses what is no plain YAML, or too much
    content = _mapping(yaml.load(text, Loader=yaml.BaseLoader), _FILE, place, "the file")  # texts alone
    return UnitTestFile(
        tuple(_list(content, "rule_files")),
        _duration(content.get("evaluation_interval"), _MINUTE_MS, place),
        tuple(_list(content, "group_eval_order")),
        tuple(_test(each, place, number) for number, each in enumerate(_list(content, "tests"), 1)),
    )


def _test(node: Any, place: Place, number: int) -> UnitTest:
    content = _mapping(node, _TEST, place, f"test {number}")
    return UnitTest(
        content.get("name") or f"test {number}",
        _duration(content.get("interval"), _MINUTE_MS, place),
        tuple(
            (series_labels(each["series"]), tuple(series_values(each["values"])))
            for each in _list(content, "input_series")
        ),
        tuple(_alert_check(each, place) for each in _list(content, "alert_rule_test")),
        tuple(_expression_check(each, place) for each in _list(content, "promql_expr_test")),
        content.get("external_labels") or {},
    )


def _alert_check(node: Any, place: Place) -> AlertCheck:
    content = _mapping(node, {"eval_time", "alertname", "exp_alerts"}, place, "alert_rule_test")
    alerts = tuple(
        ExpectedAlert(each.get("exp_labels") or {}, each.get("exp_annotations") or {})
        for each in _list(content, "exp_alerts")
    )
    return AlertCheck(_duration(content.get("eval_time"), 0, place), content.get("alertname", ""), alerts)


def _expression_check(node: Any, place: Place) -> ExpressionCheck:
    content = _mapping(node, {"expr", "eval_time", "exp_samples"}, place, "promql_expr_test")
    samples = tuple(
        (series_labels(each.get("labels", "")), float(each["value"])) for each in _list(content, "exp_samples")
    )
    return ExpressionCheck(_duration(content.get("eval_time"), 0, place), content.get("expr", ""), samples)


def _mapping(node: Any, known: set[str], place: Place, what: str) -> Mapping[str, Any]:
    if not isinstance(node, dict):
        raise place.refuse(f"{what} must be a mapping")
    if unknown := sorted(set(node) - known):
        raise place.refuse(f'unknown field "{unknown[0]}" in {what}', wanted=", ".join(sorted(known)))
    return node


def _list(content: Mapping[str, Any], name: str) -> Sequence[Any]:
    value = content.get(name) or []
    return value if isinstance(value, list) else [value]


def _duration(text: str | None, default_ms: int, place: Place) -> int:
    try:
        return duration_ms(text) if text else default_ms
    except BadQuery as error:
        raise place.refuse(str(error)) from error
