"""The kinds of rules: each is brought to one form, a PromQL expression whose values are compared. Pure.

| kind | value of the expression |
|---|---|
| threshold | the expression itself; without a comparator, being in the answer is the violation |
| rate, change | ``rate(x[window])``, ``delta(x[window])`` |
| heartbeat | the age in seconds of the newest sample of each group; its condition is that age above the window |
| anomaly | the expression itself; judging turns it into distances from past weeks (``anomalies``) |
| forecast | ``predict_linear(x[window], horizon)`` where the window has ten points; the query's kernel fits the line |
| composite | rules of the app joined by ``and``, ``or``, ``not`` (``composites``); being in the answer violates |

Enter by ``value_expr`` and ``condition_of``.
"""

from dataclasses import dataclass
from enum import StrEnum

from alerts.judging import limits
from alerts.judging.conditions import Condition, MissingPolicy


class Kind(StrEnum):
    """What a rule compares."""

    THRESHOLD = "threshold"
    RATE = "rate"
    CHANGE = "change"
    HEARTBEAT = "heartbeat"
    ANOMALY = "anomaly"
    FORECAST = "forecast"
    COMPOSITE = "composite"


@dataclass(frozen=True, slots=True)
class Parameters:
    """What a kind needs besides the expression; each kind uses some of them.

    ``window_ms``: of rate, change and forecast; of a heartbeat, how long it may be silent. ``forget_ms``: after which a
    silent group is gone. ``weeks`` and ``spread_min`` are of an anomaly. ``by``: the labels that make a group of a
    heartbeat, and those on which the parts of a composite are joined; none: all labels.
    """

    window_ms: int = limits.WINDOW_MS
    horizon_ms: int = limits.HORIZON_MS
    forget_ms: int = limits.FORGET_MS
    weeks: int = limits.ANOMALY_WEEKS
    spread_min: float = 0.0
    by: tuple[str, ...] = ()


def value_expr(kind: Kind, expr: str, parameters: Parameters) -> str:
    """Return the PromQL expression whose values a rule of this kind judges."""
    window = f"{parameters.window_ms}ms"
    match kind:
        case Kind.RATE:
            return f"rate({expr}[{window}])"
        case Kind.CHANGE:
            return f"delta({expr}[{window}])"
        case Kind.FORECAST:
            points = f"count_over_time({expr}[{window}]) >= {limits.FORECAST_POINTS_MIN}"
            return f"predict_linear({expr}[{window}], {parameters.horizon_ms / 1000:g}) and {points}"
        case Kind.HEARTBEAT:
            newest = f"ts_of_last_over_time({expr}[{parameters.forget_ms}ms])"
            return f"time() - max by ({', '.join(parameters.by)}) ({newest})" if parameters.by else f"time() - {newest}"
        case _:
            return expr


def condition_of(kind: Kind, parameters: Parameters, written: Condition) -> Condition:
    """Return the condition that the values of this kind must meet: the one written in the rule, where it has a say."""
    match kind:
        case Kind.HEARTBEAT:
            return Condition(">", parameters.window_ms / 1000, None, MissingPolicy.GONE)
        case Kind.COMPOSITE:
            return Condition()
        case _:
            return written
