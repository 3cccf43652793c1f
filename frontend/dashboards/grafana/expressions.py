"""Rewrites expressions, variables and legends of Grafana into ours. Pure."""

import re

from frontend.dashboards.variables import AUTO
from spm.errors import BadQuery
from spm.query.promql.planning.planner import parse

_TIMES = (  # what Grafana fills in as a number with a unit behind it is a duration here
    (re.compile(r"\$\{?__(range|interval)_s\}?s\b"), r"$__\1"),
    (re.compile(r"\$\{?__(range|interval)_ms\}?ms\b"), r"$__\1"),
    (re.compile(r"\$\{__(rate_interval|interval|range)\}"), r"$__\1"),
)
_UNKNOWN = re.compile(r"\$\{?__(?!rate_interval\b|interval\b|range\b)\w+\}?")
_NAME = re.compile(r"\$\{(\w+)(?::\w+)?\}|\$(\w+)|\[\[(\w+)(?::\w+)?\]\]")
_DURATION = re.compile(r"\[\s*(?:\$\{?\w+\}?)\s*(:[^\]]*)?\]")


def rewrite(expr: str) -> str:
    """Return the expression with our names of ranges and intervals; raises ``BadQuery`` for what has none."""
    text = expr.strip()
    for pattern, ours in _TIMES:
        text = pattern.sub(ours, text)
    unknown = _UNKNOWN.search(text)
    if unknown:
        raise BadQuery(f"{unknown[0]} is not known here")
    return text


def check(expr: str) -> str:
    """Say why an expression cannot be evaluated here; empty if it can, whatever its variables stand for."""
    reason = ""
    for value in ("1", "5m", "name"):  # a variable may be a number, a duration or a name
        text = _DURATION.sub(lambda match: "[5m:1m]" if match[1] else "[5m]", expr)
        text = _NAME.sub(value, text)
        try:
            parse(text)
        except BadQuery as error:
            reason = reason or str(error)
        else:
            return ""
    return reason


def scaled(expr: str, factor: float) -> str:
    """Multiply an expression."""
    return expr if factor == 1 else f"({expr}) * {factor:g}"


def automatic(values: list[str]) -> list[str]:
    """Return values of an interval, with ours for the automatic one."""
    return [AUTO if each == "auto" or each.startswith("$__auto") else each for each in values]
