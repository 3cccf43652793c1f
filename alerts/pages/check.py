"""Checks a rule while somebody writes it: returns the error of the expression, or its series and their values."""

from collections.abc import Mapping
from dataclasses import dataclass

from alerts.expressions import Querier
from alerts.judging.conditions import Condition, is_violated
from spm import limits
from spm.errors import BadQuery, SpmError


@dataclass(frozen=True, slots=True)
class Row:
    """One series of the answer, and whether it would fire."""

    labels: Mapping[str, str]
    value: float
    violated: bool


@dataclass(frozen=True, slots=True)
class Check:
    """The answer, or why there is none; ``pointer`` is the expression's text up to the error."""

    error: str = ""
    pointer: str = ""
    rows: tuple[Row, ...] = ()
    total: int = 0
    violated: int = 0

    @property
    def more(self) -> int:
        """The number of series that are not shown."""
        return self.total - len(self.rows)


def check(app: int, expr: str, condition: Condition, *, at_ms: int, querier: Querier) -> Check:
    """Query the expression once; lists violated series first, then the largest values."""
    if not expr.strip():
        return Check(error="Write an expression.")
    if len(expr) > limits.RULE_EXPR_CHARS_MAX:
        return Check(error=f"An expression has at most {limits.RULE_EXPR_CHARS_MAX} characters.")
    try:
        values = querier(app, expr, at_ms)
    except BadQuery as error:
        return Check(error=str(error), pointer="" if error.position is None else expr[: error.position])
    except SpmError as error:
        return Check(error=str(error))
    rows = [Row(one.labels, one.value, is_violated(condition, one.value)) for one in values]
    rows.sort(key=lambda row: (not row.violated, -row.value, sorted(row.labels.items())))
    violated = sum(row.violated for row in rows)
    return Check(rows=tuple(rows[: limits.PREVIEW_ROWS_MAX]), total=len(rows), violated=violated)
