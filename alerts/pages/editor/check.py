"""Checks a rule while somebody writes it: the error of its expression, or its series and their values now."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from alerts.expressions import Querier, SeriesValue
from alerts.judging import composites
from alerts.judging.anomalies import distances
from alerts.judging.conditions import Condition, is_violated
from alerts.judging.kinds import Kind
from alerts.judging.versions import RuleVersion, Steps
from alerts.recording.sessions import open_session
from spm import limits
from spm.errors import BadQuery, SpmError
from spm.query.promql.planning.planner import parse


@dataclass(frozen=True, slots=True)
class Row:
    """One series of the answer, and whether it would fire."""

    labels: Mapping[str, str]
    value: float
    violated: bool


@dataclass(frozen=True, slots=True)
class Check:
    """The answer, or why there is none; ``pointer`` is the expression's text up to the error.

    ``is_blank``: nothing is written yet, which is no mistake.
    """

    is_blank: bool = False
    error: str = ""
    pointer: str = ""
    rows: tuple[Row, ...] = ()
    total: int = 0
    violated: int = 0

    @property
    def more(self) -> int:
        """The number of series that are not shown."""
        return self.total - len(self.rows)


def check(app: int, version: RuleVersion, *, at_ms: int, querier: Querier) -> Check:
    """Evaluate the rule once; lists violated series first, then the largest values. A composite has no values."""
    if not version.expr.strip():
        return Check(is_blank=True)
    if len(version.expr) > limits.RULE_EXPR_CHARS_MAX:
        return Check(error=f"An expression has at most {limits.RULE_EXPR_CHARS_MAX} characters.")
    try:
        values = _values(app, version, at_ms, querier)
    except BadQuery as error:
        return Check(error=str(error), pointer="" if error.position is None else version.expr[: error.position])
    except SpmError as error:
        return Check(error=str(error))
    return _rows(values, version.condition)


def _values(app: int, version: RuleVersion, at_ms: int, querier: Querier) -> Iterable[SeriesValue]:
    """Return the values that are compared now; raises ``SpmError``."""
    if version.kind is Kind.COMPOSITE:
        composites.parse(version.expr)
        return ()
    if version.value_expr != version.expr:
        parse(version.expr)  # so that the place of an error is one of the text that was written
    values = querier(app, version.value_expr, at_ms)
    return _distances(app, version, at_ms) if version.kind is Kind.ANOMALY else values


def _distances(app: int, version: RuleVersion, at_ms: int) -> list[SeriesValue]:
    read = open_session(app)
    step_ms = at_ms // limits.RULE_PERIOD_MS * limits.RULE_PERIOD_MS
    steps = Steps(step_ms, step_ms, limits.RULE_PERIOD_MS)
    answer = distances(version.value_expr, version.parameters, read(version.value_expr, steps), steps, read)
    rows = zip(answer.labels, answer.values[:, 0], answer.present[:, 0], strict=True)
    return [SeriesValue(labels, float(value)) for labels, value, present in rows if present and not np.isnan(value)]


def _rows(values: Iterable[SeriesValue], condition: Condition) -> Check:
    rows = [Row(one.labels, one.value, is_violated(condition, one.value)) for one in values]
    rows.sort(key=lambda row: (not row.violated, -row.value, sorted(row.labels.items())))
    violated = sum(row.violated for row in rows)
    return Check(rows=tuple(rows[: limits.PREVIEW_ROWS_MAX]), total=len(rows), violated=violated)
