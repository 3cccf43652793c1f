"""Splits a text into the tokens of PromQL: words, numbers, strings and operators, each with its position.

Numbers include durations (`1h30m` is 5400), hexadecimal numbers, and `Inf` and `NaN` in any case; strings are Go's,
with its escapes. Between square brackets a colon separates range and step and is not part of a name. One regular
expression passes over the text once, without backtracking. Enter by `tokenize`.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from spm.errors import BadQuery

NUMBER, STRING, WORD, SIGN, END = "number", "string", "name", "sign", "end of input"

_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0, "y": 31_536_000.0}
_DURATION = r"(?:\d+y)?(?:\d+w)?(?:\d+d)?(?:\d+h)?(?:\d+m(?!s))?(?:\d+s)?(?:\d+ms)?"
# The alternatives begin with different characters, except numbers and the colon; the most frequent come first.
_TOKEN = re.compile(
    r"""(?P<word>[A-Za-z_:][A-Za-z0-9_:]*+)"""
    r"""|(?P<sign>[=!<>]=|[=!]~|</|>/|[-+*/%^<>=(){}\[\],@:])"""
    r"""|(?P<space>[ \t\r\n]++|\#[^\n]*+)"""
    r"""|(?P<string>"[^"\\\n]*+(?:\\.[^"\\\n]*+)*"|'[^'\\\n]*+(?:\\.[^'\\\n]*+)*'|`[^`]*+`)"""
    rf"""|(?P<duration>(?=\d++(?:ms|[smhdwy])){_DURATION})(?![0-9A-Za-z_])"""
    r"""|(?P<number>0[xX][0-9a-fA-F_]++|(?:\d[\d_]*+\.?[\d_]*+|\.\d[\d_]*+)(?:[eE][+-]?\d++)?)(?![0-9A-Za-z_])"""
)
_PLAIN_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*+")
_ESCAPE = re.compile(
    r"\\(?:([abfnrtv\\'\"])|([0-7]{3})|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.S
)
_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class Token(NamedTuple):
    """A piece of the text. `value` is a float for numbers, the unquoted text of strings, else the text itself."""

    kind: str
    text: str
    position: int
    value: float | str = ""

    @property
    def description(self) -> str:
        """The token as error messages name it."""
        return self.kind if self.kind == END else f"{self.kind} {self.text!r}"


_new = tuple.__new__  # makes a `Token` at a third of the cost of calling the class
_NAME_ENDS = tuple("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_NUMERAL_CHARS = len("inf")


def refuse(text: str, position: int, message: str) -> BadQuery:
    """Returns the error of a text, with line and column as Prometheus counts them."""
    before = text[:position]
    column = position - (before.rfind("\n") + 1) + 1
    return BadQuery(f"{before.count(chr(10)) + 1}:{column}: parse error: {message}", position)


def tokenize(text: str) -> list[Token]:
    """Returns all tokens, with the end as the last; raises `BadQuery` where no token can begin."""
    tokens: list[Token] = []
    position, brackets, end = 0, 0, len(text)
    match_at, append = _TOKEN.match, tokens.append
    while position < end:
        match = match_at(text, position)
        if match is None or match.end() == position:
            raise _lexical_error(text, position)
        kind, word = match.lastgroup, match[0]
        if kind == "word" and brackets:
            plain = _PLAIN_WORD.match(text, position)
            kind, word = ("word", plain[0]) if plain else ("sign", ":")
        if kind == "sign":
            if word in "[]":
                brackets += 1 if word == "[" else -1
            append(_new(Token, (SIGN, word, position, word)))
        elif kind == "word" and len(word) != _NUMERAL_CHARS:
            append(_new(Token, (WORD, word, position, word)))
        elif kind != "space":
            append(_token(text, str(kind), word, position))
        position += len(word)
    append(Token(END, "", end))
    return tokens


def _token(text: str, kind: str, word: str, position: int) -> Token:
    if kind == "word" and word.lower() not in ("inf", "nan"):
        return Token(WORD, word, position, word)
    if kind == "string":
        return Token(STRING, word, position, _unquote(text, word, position))
    if kind == "duration":
        return Token(NUMBER, word, position, _seconds(word))
    if kind == "number":
        value = _float(word.replace("_", ""))
        if math.isinf(value):
            raise refuse(text, position, f"cannot parse {word[:40]!r} to a number: value out of range")
        return Token(NUMBER, word, position, value)
    return Token(NUMBER, word, position, math.inf if word.lower() == "inf" else math.nan)


def _float(digits: str) -> float:
    """Converts digits to a number; infinity if it is too large."""
    try:
        if digits[:2].lower() == "0x":
            return float(int(digits, 16))
        # An integer with a leading zero is octal, as in Go.
        if len(digits) > 1 and digits[0] == "0" and digits.isdigit() and not set(digits) & {"8", "9"}:
            return float(int(digits, 8))
    except OverflowError:
        return math.inf
    return float(digits)


def _seconds(word: str) -> float:
    parts = re.findall(r"(\d+)(ms|[smhdwy])", word)
    return math.fsum(int(count[:18]) * _UNIT_S[unit] for count, unit in parts)


def _lexical_error(text: str, position: int) -> BadQuery:
    here = text[position]
    if here in "\"'`":
        return refuse(text, position, "unterminated quoted string")
    if here.isdigit() or here == ".":
        word = re.match(r"[0-9A-Za-z_.]*", text[position:])
        follows_name = here == "." and text[:position].endswith(_NAME_ENDS)
        more = '; a name with dots is written in quotes within braces, as in {"a.b"}' if follows_name else ""
        return refuse(text, position, f"bad number or duration syntax: {word.group() if word else here!r}{more}")
    return refuse(text, position, f"unexpected character: {here!r}")


def _unquote(text: str, quoted: str, position: int) -> str:
    inner = quoted[1:-1]
    if quoted[0] == "`" or "\\" not in inner:
        return inner
    raw, at = bytearray(), 0
    for match in _ESCAPE.finditer(inner):
        raw += inner[at : match.start()].encode()
        raw += _unescape(text, match, quoted[0], position + 1 + match.start())
        at = match.end()
    raw += inner[at:].encode()
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise refuse(text, position, "a string must be valid UTF-8") from None


def _unescape(text: str, match: re.Match[str], quote: str, position: int) -> bytes:
    simple, octal, byte, short, long, other = match.groups()
    if other is not None or (simple in ("'", '"') and simple != quote):
        raise refuse(text, position, f"unknown escape sequence {match.group()!r}")
    if simple is not None:
        return _SIMPLE.get(simple, simple).encode()
    if octal is not None or byte is not None:
        number = int(octal, 8) if octal is not None else int(byte, 16)
        if number > 255:
            raise refuse(text, position, f"octal escape value {match.group()} > 255")
        return bytes([number])
    point = int(short or long, 16)
    if point > 0x10FFFF or 0xD800 <= point < 0xE000:
        raise refuse(text, position, "escape sequence is an invalid Unicode code point")
    return chr(point).encode()
