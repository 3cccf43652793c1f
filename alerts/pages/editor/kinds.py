"""The kinds of rules as the editor offers them, and which fields each uses. Pure.

``promql`` is a threshold rule without a comparator: its expression alone decides.
"""

import re
from collections.abc import Mapping

from alerts.judging.kinds import Kind

PROMQL = "promql"
CHOICES: Mapping[str, str] = {
    Kind.THRESHOLD: "Threshold",
    Kind.RATE: "Rate of change",
    Kind.CHANGE: "Change",
    Kind.HEARTBEAT: "No data",
    Kind.ANOMALY: "Anomaly",
    Kind.FORECAST: "Forecast",
    Kind.COMPOSITE: "Composite",
    PROMQL: "Any PromQL",
}
MEANINGS: Mapping[str, str] = {
    Kind.THRESHOLD: "Any PromQL whose value is compared, such as avg by (host) (cpu_usage_total).",
    Kind.RATE: "A counter, such as net_bytes_recv. Its increase per second over the window is compared.",
    Kind.CHANGE: "A gauge, such as disk_used_bytes. The difference of its values over the window is compared.",
    Kind.HEARTBEAT: 'A selector, such as up{job="backup"}. A series, or a group, without a new sample for the window '
    "fires.",
    Kind.ANOMALY: "Any PromQL. How many times its usual spread it is away from the same half hour of past weeks is "
    "compared.",
    Kind.FORECAST: "A gauge. What the line through its values of the window reaches in the time ahead is compared.",
    Kind.COMPOSITE: "Rules of this app by their number, such as #3 and not (#7 or #8).",
    PROMQL: "As in Prometheus: a series in the answer fires, one that is not in it is well. For example cpu > 90.",
}
_VARIABLE = re.compile(
    r"""("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|\$(?:__rate_interval|__interval|__range|window)\b""", re.DOTALL
)
_FIXED_WINDOW = "5m"
_COMPARED = (Kind.THRESHOLD, Kind.RATE, Kind.CHANGE, Kind.ANOMALY, Kind.FORECAST)
FIELD_KINDS: Mapping[str, tuple[str, ...]] = {  # fields that only some kinds use
    "comparator": _COMPARED,
    "threshold": _COMPARED,
    "recovery": _COMPARED,
    "missing": _COMPARED,
    "hold_ms": _COMPARED,
    "missing_for_ms": _COMPARED,
    "window_ms": (Kind.RATE, Kind.CHANGE, Kind.HEARTBEAT, Kind.FORECAST),
    "horizon_ms": (Kind.FORECAST,),
    "forget_ms": (Kind.HEARTBEAT,),
    "weeks": (Kind.ANOMALY,),
    "spread_min": (Kind.ANOMALY,),
    "by": (Kind.HEARTBEAT, Kind.COMPOSITE),
}


def is_used(field: str, kind: str) -> bool:
    """Whether rules of a kind use a field."""
    return kind in FIELD_KINDS.get(field, (kind,))


def with_fixed_windows(expr: str) -> str:
    """Replace the variables of a chart, whose windows depend on its range: a rule has none, and judges at any time."""
    return _VARIABLE.sub(lambda match: match[1] or _FIXED_WINDOW, expr)
