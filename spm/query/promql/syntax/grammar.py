"""Tokens to a tree: the grammar of PromQL, by precedence climbing.

Recursion is as deep as brackets, signs and powers are, which the guard bounds; chains of other operators are loops.
Every refusal names the position, what stands there, and what was wanted. Keywords are words in any case, and are names
of metrics wherever they cannot be keywords. Enter by `tree`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import lru_cache

from spm.errors import BadQuery
from spm.limits import QUERY_PLANS_KEPT
from spm.query.promql.syntax import lexer, text_bounds
from spm.query.promql.syntax.durations import Durations
from spm.query.promql.syntax.lexer import END, NUMBER, SIGN, STRING, WORD, Token
from spm.query.promql.syntax.tree import (
    Call,
    Grouped,
    Literal,
    Modifiers,
    Node,
    Operation,
    Parenthesis,
    Quoted,
    Series,
    Signed,
    Subquery,
    When,
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
_UNARY = 5  # a sign binds like a product, so weaker than a power
_FOLLOWING = frozenset({"[", "@", "offset", "anchored", "smoothed"})  # what may follow an expression
_MATCH_SIGNS = ("=", "!=", "=~", "!~")


@lru_cache(maxsize=QUERY_PLANS_KEPT)
def tree(text: str) -> Node:
    """The tree of a text; `BadQuery` if it is too large or malformed."""
    text_bounds.check(text)
    return _Reader(text).whole()


class _Reader:
    """Reads the tokens of one text from left to right."""

    def __init__(self, text: str) -> None:
        self._text, self._tokens, self._next = text, lexer.tokens(text), 0
        self.here = self._tokens[0]  # the token to be read next

    # --- tokens ---

    def take(self) -> Token:
        """Read the next token; the end stays where it is."""
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

    def want(self, sign: str, context: str) -> Token:
        """Read a sign that must be there."""
        if not self.sees(sign):
            raise self.unexpected(context, repr(sign))
        return self.take()

    def unexpected(self, context: str, wanted: str) -> BadQuery:
        """The error of the next token."""
        return self.refuse(self.here.position, f"unexpected {self.here.shown} in {context}, expected {wanted}")

    def refuse(self, position: int, message: str) -> BadQuery:
        """The error of a position."""
        return lexer.refuse(self._text, position, message)

    # --- expressions ---

    def whole(self) -> Node:
        """The only expression of the text."""
        if self.here.kind == END:
            raise self.refuse(0, "no expression found in input")
        found = self._expression(0)
        if self.here.kind != END:
            raise self.unexpected("expression", "an operator or the end")
        return found

    def _expression(self, least: int) -> Node:
        left = self._signed()
        while True:
            op = self.here.text.lower() if self.here.kind in (SIGN, WORD) else ""
            precedence = _PRECEDENCE.get(op, 0)
            if precedence == 0 or precedence < least:
                return left
            at = self.take().position
            modifiers = self._modifiers()
            right = self._expression(precedence if op == "^" else precedence + 1)
            left = Operation(op, left, right, modifiers, left.position, at)

    def _signed(self) -> Node:
        if not self.sees("+", "-"):
            return self._modified(self._primary())
        sign = self.take()
        inner = self._expression(_UNARY + 1) if not self.sees("+", "-") else self._signed()
        if isinstance(inner, Literal):
            return Literal(-inner.value if sign.text == "-" else inner.value, sign.position)
        return Signed(sign.text, inner, sign.position)

    def _primary(self) -> Node:
        token = self.here
        if token.kind == NUMBER:
            self.take()
            return Literal(float(token.value), token.position)
        if token.kind == STRING:
            self.take()
            return Quoted(str(token.value), token.position)
        if self.sees("("):
            self.take()
            inner = self._expression(0)
            self.want(")", "parentheses")
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
        self.want("(", context)
        found: list[Node] = []
        while not self.sees(")"):
            found.append(self._expression(0))
            if not self.sees(",", ")"):
                raise self.unexpected(context, "',' or ')'")
            if self.sees(","):
                comma = self.take()
                if self.sees(")"):
                    raise self.refuse(comma.position, f"trailing commas not allowed in {context}")
        self.take()
        return tuple(found)

    def _aggregation(self, name: Token) -> Node:
        grouping, labels = self._grouping()
        arguments = self._arguments(f"aggregation {name.text!r}")
        if not grouping:
            grouping, labels = self._grouping()
        return Grouped(name.text.lower(), arguments, grouping, labels, name.position)

    def _grouping(self) -> tuple[str, tuple[str, ...]]:
        if not self.sees_word("by", "without"):
            return "", ()
        return self.take().text.lower(), self._labels()

    def _labels(self) -> tuple[str, ...]:
        self.want("(", "grouping opts")
        found: list[str] = []
        while not self.sees(")"):
            token = self.take()
            if token.kind not in (WORD, STRING) or not token.value or (token.kind == WORD and ":" in token.text):
                raise self.refuse(token.position, f"unexpected {token.shown} in grouping opts, expected label")
            found.append(str(token.value))
            if not self.sees(",", ")"):
                raise self.unexpected("grouping opts", "',' or ')'")
            if self.sees(","):
                self.take()
        self.take()
        return tuple(found)

    # --- operators ---

    def _modifiers(self) -> Modifiers:
        found = Modifiers(as_bool=self._skip("bool"))
        if self.sees_word("on", "ignoring") and self.follows("("):
            matching = self.take().text.lower()
            found = dataclasses.replace(found, matching=matching, labels=self._labels())
            if self.sees_word("group_left", "group_right"):
                many = "left" if self.take().text.lower() == "group_left" else "right"
                include = self._labels() if self.sees("(") else ()
                found = dataclasses.replace(found, many=many, include=include)
        while self.sees_word("fill", "fill_left", "fill_right") and self.follows("("):
            found = self._fill(found, self.take())
        return found

    def _skip(self, word: str) -> bool:
        found = self.sees_word(word)
        if found:
            self.take()
        return found

    def _fill(self, modifiers: Modifiers, name: Token) -> Modifiers:
        word = name.text.lower()
        sides = {"fill": ("fill_left", "fill_right")}.get(word, (word,))
        if any(getattr(modifiers, side) is not None for side in sides):
            raise self.refuse(name.position, f"unexpected name {name.text!r} in operator, expected an expression")
        self.want("(", word)
        sign = self.take().text if self.sees("+", "-") else "+"
        if self.here.kind != NUMBER:
            raise self.unexpected(word, "number")
        number = float(self.take().value) * (-1 if sign == "-" else 1)
        self.want(")", word)
        return dataclasses.replace(
            modifiers,
            fill_left=number if "fill_left" in sides else modifiers.fill_left,
            fill_right=number if "fill_right" in sides else modifiers.fill_right,
        )

    # --- selectors ---

    def _selector(self, name: Token | None) -> Series:
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
        return Series(None if name is None else name.text, tuple(matchers), position)

    def _matcher(self) -> Matcher:
        token = self.take()
        if token.kind not in (WORD, STRING) or (token.kind == WORD and ":" in token.text):
            raise self.refuse(token.position, f"unexpected {token.shown} in label matching, expected label or '}}'")
        if not self.sees(*_MATCH_SIGNS):
            if token.kind == STRING:
                return Matcher(METRIC_NAME, "=", str(token.value))
            raise self.unexpected("label matching", "one of = != =~ !~")
        op = self.take().text
        if self.here.kind != STRING:
            raise self.unexpected("label matching", "string")
        return Matcher(str(token.value), op, str(self.take().value))

    # --- what follows an expression ---

    def _modified(self, node: Node) -> Node:
        while True:
            if self.here.text.lower() not in _FOLLOWING:
                return node
            if self.sees("["):
                node = self._bracket(node)
            elif self.sees_word("offset"):
                node = self._timed(node, self._offset)
            elif self.sees("@"):
                node = self._timed(node, self._at)
            elif self.sees_word("anchored", "smoothed"):
                node = self._mode(node, self.take())
            else:
                return node

    def _bracket(self, node: Node) -> Node:
        bracket = self.take()
        span = Durations(self).read("subquery or range selector")
        if self.sees(":"):
            self.take()
            step = None if self.sees("]") else Durations(self).read("subquery selector")
            self.want("]", "subquery selector")
            return Subquery(node, span, step, node.position)
        self.want("]", "subquery or range")
        if not isinstance(node, Series) or node.range is not None:
            raise self.refuse(bracket.position, "ranges only allowed for vector selectors")
        if node.when.offset is not None:
            raise self.refuse(bracket.position, "no offset modifiers allowed before range")
        if node.when.at is not None:
            raise self.refuse(bracket.position, "no @ modifiers allowed before range")
        return dataclasses.replace(node, range=span)

    def _timed(self, node: Node, read: Callable[[When, Token], When]) -> Node:
        word = self.take()
        if not isinstance(node, Series | Subquery):
            raise self.refuse(
                node.position,
                f"{word.text.lower()} modifier must be preceded by an instant vector selector or range vector selector "
                "or a subquery",
            )
        return dataclasses.replace(node, when=read(node.when, word))

    def _offset(self, when: When, word: Token) -> When:
        if when.offset is not None:
            raise self.refuse(word.position, "offset may not be set multiple times")
        return dataclasses.replace(when, offset=Durations(self).simple("offset"))

    def _at(self, when: When, word: Token) -> When:
        if when.at is not None:
            raise self.refuse(word.position, "@ <timestamp> may not be set multiple times")
        if self.sees_word("start", "end") and self.follows("("):
            border = self.take().text.lower()
            self.want("(", "@")
            self.want(")", "@")
            return dataclasses.replace(when, at=border)
        sign = self.take().text if self.sees("+", "-") else "+"
        if self.here.kind != NUMBER:
            raise self.unexpected("@", "timestamp, start() or end()")
        number = float(self.take().value)
        if not abs(number) < 9e15:
            raise self.refuse(word.position, f"timestamp out of bounds for @ modifier: {number:f}")
        return dataclasses.replace(when, at=-number if sign == "-" else number)

    def _mode(self, node: Node, word: Token) -> Node:
        name = word.text.lower()
        if not isinstance(node, Series):
            what = "for subqueries" if isinstance(node, Subquery) else "here"
            raise self.refuse(word.position, f"{name} modifier is not supported {what}")
        if node.mode and node.mode != name:
            raise self.refuse(word.position, "anchored and smoothed modifiers cannot be used together")
        return dataclasses.replace(node, mode=name)
