"""Parses tokens into a tree: the grammar of PromQL, by precedence climbing.

Recursion is as deep as brackets, signs and powers are nested, which `text_bounds` limits; chains of other operators are
loops. Every error names the position, the token there, and what was expected. Keywords are case-insensitive, and are
names of metrics wherever they cannot be keywords. Enter by `parse_tree`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import lru_cache

from spm.errors import BadQuery
from spm.limits import QUERY_PLANS_MAX
from spm.query.promql.syntax import lexer, text_bounds
from spm.query.promql.syntax.durations import DurationParser
from spm.query.promql.syntax.lexer import END, NUMBER, SIGN, STRING, WORD, Token
from spm.query.promql.syntax.tree import (
    AggregateExpression,
    BinaryExpression,
    Call,
    Node,
    NumberLiteral,
    OperatorModifiers,
    Parenthesis,
    SelectorExpression,
    StringLiteral,
    Subquery,
    TimeModifiers,
    UnaryExpression,
)
from spm.query.request.batches import METRIC_NAME, Matcher

# fmt: off
AGGREGATIONS = frozenset({
    "sum", "avg", "min", "max", "count", "group", "stddev", "stdvar", "quantile", "topk", "bottomk", "limitk",
    "limit_ratio", "count_values",
})
# fmt: on
SET_OPERATORS = frozenset({"and", "or", "unless"})
_PRECEDENCE = {
    "or": 1,
    "and": 2,
    "unless": 2,
    "==": 3,
    "!=": 3,
    "<": 3,
    "<=": 3,
    ">": 3,
    ">=": 3,
    "</": 3,
    ">/": 3,
    "+": 4,
    "-": 4,
    "*": 5,
    "/": 5,
    "%": 5,
    "atan2": 5,
    "^": 6,
}
_UNARY = 5  # a sign binds like a product, weaker than a power
_FOLLOWING = frozenset({"[", "@", "offset", "anchored", "smoothed"})  # what may follow an expression
_MATCH_SIGNS = ("=", "!=", "=~", "!~")


@lru_cache(maxsize=QUERY_PLANS_MAX)
def parse_tree(text: str) -> Node:
    """Parses a text; raises `BadQuery` if it is too large or malformed."""
    text_bounds.check(text)
    return _Parser(text).parse()


class _Parser:
    """Reads the tokens of one text from left to right."""

    def __init__(self, text: str) -> None:
        self._text, self._tokens, self._next = text, lexer.tokenize(text), 0
        self.here = self._tokens[0]  # the token to be read next

    # --- tokens ---

    def take(self) -> Token:
        """Reads the next token; the end is never passed."""
        token = self.here
        if token.kind != END:
            self._next += 1
            self.here = self._tokens[self._next]
        return token

    def sees(self, *signs: str) -> bool:
        """Whether one of these signs comes next."""
        return self.here.kind == SIGN and self.here.text in signs

    def sees_word(self, *words: str) -> bool:
        """Whether one of these keywords comes next."""
        return self.here.kind == WORD and self.here.text.lower() in words

    def follows(self, sign: str) -> bool:
        """Whether a sign comes after the next token."""
        after = self._tokens[min(self._next + 1, len(self._tokens) - 1)]
        return after.kind == SIGN and after.text == sign

    def require(self, sign: str, context: str) -> Token:
        """Reads a required sign."""
        if not self.sees(sign):
            raise self.unexpected(context, repr(sign))
        return self.take()

    def unexpected(self, context: str, expected: str) -> BadQuery:
        """Returns the error of an unexpected next token."""
        return self.refuse(self.here.position, f"unexpected {self.here.description} in {context}, expected {expected}")

    def refuse(self, position: int, message: str) -> BadQuery:
        """Returns the error that points at a position of the text."""
        return lexer.refuse(self._text, position, message)

    # --- expressions ---

    def parse(self) -> Node:
        """Parses the whole text as one expression."""
        if self.here.kind == END:
            raise self.refuse(0, "no expression found in input")
        node = self._expression(0)
        if self.here.kind != END:
            raise self.unexpected("expression", "an operator or the end")
        return node

    def _expression(self, least: int) -> Node:
        left = self._unary()
        while True:
            op = self.here.text.lower() if self.here.kind in (SIGN, WORD) else ""
            precedence = _PRECEDENCE.get(op, 0)
            if precedence == 0 or precedence < least:
                return left
            at = self.take().position
            modifiers = self._modifiers()
            right = self._expression(precedence if op == "^" else precedence + 1)
            left = BinaryExpression(op, left, right, modifiers, left.position, at)

    def _unary(self) -> Node:
        if not self.sees("+", "-"):
            return self._postfix(self._primary())
        sign = self.take()
        inner = self._expression(_UNARY + 1) if not self.sees("+", "-") else self._unary()
        if isinstance(inner, NumberLiteral):
            return NumberLiteral(-inner.value if sign.text == "-" else inner.value, sign.position)
        return UnaryExpression(sign.text, inner, sign.position)

    def _primary(self) -> Node:
        token = self.here
        if token.kind == NUMBER:
            self.take()
            return NumberLiteral(float(token.value), token.position)
        if token.kind == STRING:
            self.take()
            return StringLiteral(str(token.value), token.position)
        if self.sees("("):
            self.take()
            inner = self._expression(0)
            self.require(")", "parentheses")
            return Parenthesis(inner, token.position)
        if self.sees("{"):
            return self._selector(None)
        if token.kind == WORD:
            return self._word()
        raise self.unexpected("expression", "a selector, number, string, function, aggregation or '('")

    def _word(self) -> Node:
        token = self.take()
        word = token.text.lower()
        if word in AGGREGATIONS and (self.sees("(") or self.sees_word("by", "without")):
            return self._aggregation(token)
        if self.sees("("):
            return Call(token.text, self._arguments(f"call to function {token.text!r}"), token.position)
        if word == "bool":
            raise self.refuse(token.position, "unexpected name 'bool' in expression, expected it after a comparison")
        return self._selector(token)

    def _arguments(self, context: str) -> tuple[Node, ...]:
        self.require("(", context)
        arguments: list[Node] = []
        while not self.sees(")"):
            arguments.append(self._expression(0))
            if not self.sees(",", ")"):
                raise self.unexpected(context, "',' or ')'")
            if self.sees(","):
                comma = self.take()
                if self.sees(")"):
                    raise self.refuse(comma.position, f"trailing commas not allowed in {context}")
        self.take()
        return tuple(arguments)

    def _aggregation(self, name: Token) -> Node:
        grouping, labels = self._grouping()
        arguments = self._arguments(f"aggregation {name.text!r}")
        if not grouping:
            grouping, labels = self._grouping()
        return AggregateExpression(name.text.lower(), arguments, grouping, labels, name.position)

    def _grouping(self) -> tuple[str, tuple[str, ...]]:
        if not self.sees_word("by", "without"):
            return "", ()
        return self.take().text.lower(), self._labels()

    def _labels(self) -> tuple[str, ...]:
        self.require("(", "grouping opts")
        labels: list[str] = []
        while not self.sees(")"):
            token = self.take()
            if token.kind not in (WORD, STRING) or not token.value or (token.kind == WORD and ":" in token.text):
                raise self.refuse(token.position, f"unexpected {token.description} in grouping opts, expected label")
            labels.append(str(token.value))
            if not self.sees(",", ")"):
                raise self.unexpected("grouping opts", "',' or ')'")
            if self.sees(","):
                self.take()
        self.take()
        return tuple(labels)

    # --- operators ---

    def _modifiers(self) -> OperatorModifiers:
        modifiers = OperatorModifiers(as_bool=self._take_keyword("bool"))
        if self.sees_word("on", "ignoring") and self.follows("("):
            matching = self.take().text.lower()
            modifiers = dataclasses.replace(modifiers, matching=matching, labels=self._labels())
            if self.sees_word("group_left", "group_right"):
                many = "left" if self.take().text.lower() == "group_left" else "right"
                include = self._labels() if self.sees("(") else ()
                modifiers = dataclasses.replace(modifiers, many=many, include=include)
        while self.sees_word("fill", "fill_left", "fill_right") and self.follows("("):
            modifiers = self._fill(modifiers, self.take())
        return modifiers

    def _take_keyword(self, keyword: str) -> bool:
        """Reads a keyword if it comes next, and returns whether it does."""
        comes_next = self.sees_word(keyword)
        if comes_next:
            self.take()
        return comes_next

    def _fill(self, modifiers: OperatorModifiers, name: Token) -> OperatorModifiers:
        word = name.text.lower()
        sides = {"fill": ("fill_left", "fill_right")}.get(word, (word,))
        if any(getattr(modifiers, side) is not None for side in sides):
            raise self.refuse(name.position, f"unexpected name {name.text!r} in operator, expected an expression")
        self.require("(", word)
        sign = self.take().text if self.sees("+", "-") else "+"
        if self.here.kind != NUMBER:
            raise self.unexpected(word, "number")
        number = float(self.take().value) * (-1 if sign == "-" else 1)
        self.require(")", word)
        return dataclasses.replace(
            modifiers,
            fill_left=number if "fill_left" in sides else modifiers.fill_left,
            fill_right=number if "fill_right" in sides else modifiers.fill_right,
        )

    # --- selectors ---

    def _selector(self, name: Token | None) -> SelectorExpression:
        position = self.here.position if name is None else name.position
        matchers: list[Matcher] = []
        if self.sees("{"):
            self.take()
            while not self.sees("}"):
                matchers.append(self._matcher())
                if self.sees_word("or"):
                    raise self.refuse(self.here.position, "'or' between matchers is not supported")
                if not self.sees(",", "}"):
                    raise self.unexpected("label matching", "',' or '}'")
                if self.sees(","):
                    self.take()
            self.take()
        return SelectorExpression(None if name is None else name.text, tuple(matchers), position)

    def _matcher(self) -> Matcher:
        token = self.take()
        if token.kind not in (WORD, STRING) or (token.kind == WORD and ":" in token.text):
            raise self.refuse(
                token.position, f"unexpected {token.description} in label matching, expected label or '}}'"
            )
        if not self.sees(*_MATCH_SIGNS):
            if token.kind == STRING:
                return Matcher(METRIC_NAME, "=", str(token.value))
            raise self.unexpected("label matching", "one of = != =~ !~")
        op = self.take().text
        if self.here.kind != STRING:
            raise self.unexpected("label matching", "string")
        return Matcher(str(token.value), op, str(self.take().value))

    # --- modifiers after an expression ---

    def _postfix(self, node: Node) -> Node:
        while True:
            if self.here.text.lower() not in _FOLLOWING:
                return node
            if self.sees("["):
                node = self._bracket(node)
            elif self.sees_word("offset"):
                node = self._with_time(node, self._offset)
            elif self.sees("@"):
                node = self._with_time(node, self._at)
            elif self.sees_word("anchored", "smoothed"):
                node = self._with_mode(node, self.take())
            else:
                return node

    def _bracket(self, node: Node) -> Node:
        bracket = self.take()
        span = DurationParser(self).expression("subquery or range selector")
        if self.sees(":"):
            self.take()
            step = None if self.sees("]") else DurationParser(self).expression("subquery selector")
            self.require("]", "subquery selector")
            return Subquery(node, span, step, node.position)
        self.require("]", "subquery or range")
        if not isinstance(node, SelectorExpression) or node.range is not None:
            raise self.refuse(bracket.position, "ranges only allowed for vector selectors")
        if node.time.offset is not None:
            raise self.refuse(bracket.position, "no offset modifiers allowed before range")
        if node.time.at is not None:
            raise self.refuse(bracket.position, "no @ modifiers allowed before range")
        return dataclasses.replace(node, range=span)

    def _with_time(self, node: Node, read: Callable[[TimeModifiers, Token], TimeModifiers]) -> Node:
        word = self.take()
        if not isinstance(node, SelectorExpression | Subquery):
            raise self.refuse(
                node.position,
                f"{word.text.lower()} modifier must be preceded by an instant vector selector or range vector selector "
                "or a subquery",
            )
        return dataclasses.replace(node, time=read(node.time, word))

    def _offset(self, time: TimeModifiers, word: Token) -> TimeModifiers:
        if time.offset is not None:
            raise self.refuse(word.position, "offset may not be set multiple times")
        return dataclasses.replace(time, offset=DurationParser(self).term("offset"))

    def _at(self, time: TimeModifiers, word: Token) -> TimeModifiers:
        if time.at is not None:
            raise self.refuse(word.position, "@ <timestamp> may not be set multiple times")
        if self.sees_word("start", "end") and self.follows("("):
            border = self.take().text.lower()
            self.require("(", "@")
            self.require(")", "@")
            return dataclasses.replace(time, at=border)
        sign = self.take().text if self.sees("+", "-") else "+"
        if self.here.kind != NUMBER:
            raise self.unexpected("@", "timestamp, start() or end()")
        number = float(self.take().value)
        if not abs(number) < 9e15:
            raise self.refuse(word.position, f"timestamp out of bounds for @ modifier: {number:f}")
        return dataclasses.replace(time, at=-number if sign == "-" else number)

    def _with_mode(self, node: Node, word: Token) -> Node:
        name = word.text.lower()
        if not isinstance(node, SelectorExpression):
            what = "for subqueries" if isinstance(node, Subquery) else "here"
            raise self.refuse(word.position, f"{name} modifier is not supported {what}")
        if node.mode and node.mode != name:
            raise self.refuse(word.position, "anchored and smoothed modifiers cannot be used together")
        return dataclasses.replace(node, mode=name)
