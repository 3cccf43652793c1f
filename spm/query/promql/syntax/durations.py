"""Parses and evaluates durations in brackets and offsets: numbers with units, `step()`, `range()`, and arithmetic.

Prometheus 3 allows arithmetic of durations, as in `x[2 * step()]`. After `offset` only one term is read, and a sum
needs parentheses, because `x offset 5m + 1` adds 1 to the value. Enter by `DurationParser`, and by `evaluate` for
milliseconds once the query's step and range are known.
"""

from __future__ import annotations

import math
from typing import Protocol

from spm.errors import BadQuery
from spm.limits import TIME_MAX_MS
from spm.query.promql.syntax import lexer
from spm.query.promql.syntax.lexer import NUMBER, Token
from spm.query.promql.syntax.tree import DurationExpression, DurationOperation, NumberLiteral

_PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2, "%": 2, "^": 4}
_UNARY = 3
_EXTREMES = ("min_of", "max_of")


class TokenReader(Protocol):
    """Reads tokens: the part of the grammar's parser that durations need."""

    @property
    def here(self) -> Token: ...

    def take(self) -> Token: ...

    def sees(self, *signs: str) -> bool: ...

    def sees_word(self, *words: str) -> bool: ...

    def require(self, sign: str, context: str) -> Token: ...

    def unexpected(self, context: str, expected: str) -> BadQuery: ...


class DurationParser:
    """The part of the grammar that parses durations."""

    def __init__(self, reader: TokenReader) -> None:
        self._reader = reader

    def expression(self, context: str) -> DurationExpression:
        """Parses a duration with arithmetic."""
        return self._sum(context, 0)

    def term(self, context: str) -> DurationExpression:
        """Parses one term with an optional sign."""
        if self._reader.sees("+", "-"):
            sign = self._reader.take()
            return _with_sign(sign, self.term(context))
        return self._term(context)

    def _sum(self, context: str, least: int) -> DurationExpression:
        if self._reader.sees("+", "-"):
            sign = self._reader.take()
            left: DurationExpression = _with_sign(sign, self._sum(context, _UNARY))
        else:
            left = self._term(context)
        while self._reader.sees(*_PRECEDENCE) and _PRECEDENCE[self._reader.here.text] >= least:
            op = self._reader.take().text
            binding = _PRECEDENCE[op]
            right = self._sum(context, binding if op == "^" else binding + 1)
            left = DurationOperation(op, (left, right), left.position)
        return left

    def _term(self, context: str) -> DurationExpression:
        reader, token = self._reader, self._reader.here
        if token.kind == NUMBER:
            reader.take()
            return NumberLiteral(float(token.value), token.position)
        if reader.sees("("):
            reader.take()
            inner = self.expression(context)
            reader.require(")", context)
            return inner
        if reader.sees_word("step", "range", *_EXTREMES):
            name = reader.take().text.lower()
            reader.require("(", context)
            parts: tuple[DurationExpression, ...] = ()
            if name in _EXTREMES:
                first = self.expression(context)
                reader.require(",", context)
                parts = (first, self.expression(context))
            reader.require(")", context)
            return DurationOperation(name, parts, token.position)
        raise reader.unexpected(context, "number, duration, step() or range()")


def _with_sign(sign: Token, inner: DurationExpression) -> DurationExpression:
    if isinstance(inner, NumberLiteral):
        return NumberLiteral(-inner.value if sign.text == "-" else inner.value, sign.position)
    return (
        inner
        if sign.text == "+"
        else DurationOperation("*", (NumberLiteral(-1.0, sign.position), inner), sign.position)
    )


def evaluate(text: str, duration: DurationExpression, *, step_ms: int, range_ms: int, signed: bool = False) -> int:
    """Evaluates a duration to milliseconds; raises `BadQuery` unless it is positive, or `signed`."""
    seconds = _seconds(duration, step_ms / 1000, range_ms / 1000)
    if math.isnan(seconds) or math.isinf(seconds):
        raise lexer.refuse(text, duration.position, "duration is NaN or infinite")
    if abs(seconds) * 1000 > TIME_MAX_MS:
        raise lexer.refuse(text, duration.position, "duration out of range")
    # A literal is rounded to milliseconds, a computed duration is truncated, as in Prometheus.
    ms = round(seconds * 1000) if isinstance(duration, NumberLiteral) else int(seconds * 1000)
    if ms <= 0 and not signed:
        raise lexer.refuse(text, duration.position, "duration must be greater than 0")
    return ms


def needs_context(duration: DurationExpression | None) -> bool:
    """Whether a duration depends on the step or range of the query."""
    if not isinstance(duration, DurationOperation):
        return False
    return duration.op in ("step", "range") or any(map(needs_context, duration.parts))


def _seconds(duration: DurationExpression, step: float, range_: float) -> float:
    if isinstance(duration, NumberLiteral):
        return duration.value
    if not duration.parts:
        return step if duration.op == "step" else range_
    left, right = (_seconds(part, step, range_) for part in duration.parts)
    try:
        return _compute(duration.op, left, right)
    except (OverflowError, ZeroDivisionError, ValueError):
        return math.nan


def _compute(op: str, left: float, right: float) -> float:
    match op:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "/":
            return left / right
        case "%":
            return math.fmod(left, right)
        case "^":
            return math.pow(left, right)
        case "min_of":
            return min(left, right)
        case _:
            return max(left, right)
