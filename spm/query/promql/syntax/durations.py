"""Durations in brackets and offsets: numbers and units, `step()`, `range()`, and arithmetic between them.

Prometheus 3 computes with durations where it takes them, as in `x[2 * step()]`. After `offset` only one term is read, a
sum needs parentheses, because `x offset 5m + 1` adds 1 to the value. `evaluated` gives milliseconds once the query's
own step and range are known.
"""

from __future__ import annotations

import math
from typing import Protocol

from spm.errors import BadQuery
from spm.limits import TIME_MAX_MS
from spm.query.promql.syntax import lexer
from spm.query.promql.syntax.lexer import NUMBER, Token
from spm.query.promql.syntax.tree import Duration, Literal, Span

_PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2, "%": 2, "^": 4}
_UNARY = 3
_EXTREMES = ("min_of", "max_of")


class Reader(Protocol):
    """What reads tokens."""

    @property
    def here(self) -> Token: ...

    def take(self) -> Token: ...

    def sees(self, *signs: str) -> bool: ...

    def sees_word(self, *words: str) -> bool: ...

    def want(self, sign: str, context: str) -> Token: ...

    def unexpected(self, context: str, wanted: str) -> BadQuery: ...


class Durations:
    """The part of the grammar that is about durations."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def read(self, context: str) -> Span:
        """A duration with arithmetic."""
        return self._sum(context, 0)

    def simple(self, context: str) -> Span:
        """One term, perhaps with a sign."""
        if self._reader.sees("+", "-"):
            sign = self._reader.take()
            return _signed(sign, self.simple(context))
        return self._term(context)

    def _sum(self, context: str, least: int) -> Span:
        if self._reader.sees("+", "-"):
            sign = self._reader.take()
            left: Span = _signed(sign, self._sum(context, _UNARY))
        else:
            left = self._term(context)
        while self._reader.sees(*_PRECEDENCE) and _PRECEDENCE[self._reader.here.text] >= least:
            op = self._reader.take().text
            binding = _PRECEDENCE[op]
            right = self._sum(context, binding if op == "^" else binding + 1)
            left = Duration(op, (left, right), left.position)
        return left

    def _term(self, context: str) -> Span:
        reader, token = self._reader, self._reader.here
        if token.kind == NUMBER:
            reader.take()
            return Literal(float(token.value), token.position)
        if reader.sees("("):
            reader.take()
            inner = self.read(context)
            reader.want(")", context)
            return inner
        if reader.sees_word("step", "range", *_EXTREMES):
            name = reader.take().text.lower()
            reader.want("(", context)
            parts: tuple[Span, ...] = ()
            if name in _EXTREMES:
                first = self.read(context)
                reader.want(",", context)
                parts = (first, self.read(context))
            reader.want(")", context)
            return Duration(name, parts, token.position)
        raise reader.unexpected(context, "number, duration, step() or range()")


def _signed(sign: Token, inner: Span) -> Span:
    if isinstance(inner, Literal):
        return Literal(-inner.value if sign.text == "-" else inner.value, sign.position)
    return inner if sign.text == "+" else Duration("*", (Literal(-1.0, sign.position), inner), sign.position)


def evaluated(text: str, span: Span, *, step_ms: int, range_ms: int, signed: bool = False) -> int:
    """Milliseconds; above zero unless `signed`."""
    seconds = _seconds(span, step_ms / 1000, range_ms / 1000)
    if math.isnan(seconds) or math.isinf(seconds):
        raise lexer.refuse(text, span.position, "duration is NaN or infinite")
    if abs(seconds) * 1000 > TIME_MAX_MS:
        raise lexer.refuse(text, span.position, "duration out of range")
    # A literal is rounded to milliseconds, what was computed is cut, as Prometheus does.
    ms = round(seconds * 1000) if isinstance(span, Literal) else int(seconds * 1000)
    if ms <= 0 and not signed:
        raise lexer.refuse(text, span.position, "duration must be greater than 0")
    return ms


def needs_context(span: Span | None) -> bool:
    """Whether a duration is known only when a query is asked."""
    if not isinstance(span, Duration):
        return False
    return span.op in ("step", "range") or any(map(needs_context, span.parts))


def _seconds(span: Span, step: float, range_: float) -> float:
    if isinstance(span, Literal):
        return span.value
    if not span.parts:
        return step if span.op == "step" else range_
    left, right = (_seconds(part, step, range_) for part in span.parts)
    try:
        return _computed(span.op, left, right)
    except (OverflowError, ZeroDivisionError, ValueError):
        return math.nan


def _computed(op: str, left: float, right: float) -> float:
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
