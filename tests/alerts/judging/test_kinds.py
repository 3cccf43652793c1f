"""Kinds of rules: each becomes one PromQL expression and one condition that its values are judged by."""

import pytest

from alerts.judging.conditions import Condition, MissingPolicy
from alerts.judging.kinds import Kind, Parameters, condition_of, value_expr
from spm.query.promql.planning.planner import parse

CASES = [
    ("a threshold judges the expression itself", Kind.THRESHOLD, Parameters(), "cpu"),
    ("a rate is per second over its window", Kind.RATE, Parameters(window_ms=60_000), "rate(cpu[60000ms])"),
    ("a change is the difference over its window", Kind.CHANGE, Parameters(window_ms=60_000), "delta(cpu[60000ms])"),
    (
        "a forecast needs ten points",
        Kind.FORECAST,
        Parameters(window_ms=600_000, horizon_ms=3_600_000),
        "predict_linear(cpu[600000ms], 3600) and count_over_time(cpu[600000ms]) >= 10",
    ),
    (
        "a heartbeat is the age of the newest sample",
        Kind.HEARTBEAT,
        Parameters(forget_ms=3_600_000),
        "time() - ts_of_last_over_time(cpu[3600000ms])",
    ),
    (
        "a heartbeat of groups is the age of the newest sample of each",
        Kind.HEARTBEAT,
        Parameters(forget_ms=3_600_000, by=("job", "site")),
        "time() - max by (job, site) (ts_of_last_over_time(cpu[3600000ms]))",
    ),
]


@pytest.mark.parametrize(("kind", "parameters", "expected"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
def test_a_kind_becomes_one_expression(kind: Kind, parameters: Parameters, expected: str) -> None:
    assert value_expr(kind, "cpu", parameters) == expected
    assert parse(expected)


@pytest.mark.parametrize("kind", Kind)
def test_only_heartbeats_and_composites_have_a_condition_of_their_own(kind: Kind) -> None:
    written = Condition("<", 5.0, 6.0, MissingPolicy.ALERT)
    own = {
        Kind.HEARTBEAT: Condition(">", 90.0, None, MissingPolicy.GONE),  # older than the window; no longer than that
        Kind.COMPOSITE: Condition(),  # being in the answer is the violation
    }
    assert condition_of(kind, Parameters(window_ms=90_000), written) == own.get(kind, written)
