"""Cuts a template into texts and actions, and an action into its tokens. Pure."""

import re
from collections.abc import Iterator

from spm.errors import BadQuery

_ACTION = re.compile(
    r"\{\{(-(?=\s))?((?:\"(?:[^\"\\\n]|\\.)*\"|`[^`]*`|/\*.*?\*/|[^\"`}]|\}(?!\}))*?)((?<=\s)-)?\}\}", re.DOTALL
)
TOKEN = re.compile(
    r"\s*(?:(?P<string>\"(?:[^\"\\\n]|\\.)*\"|`[^`]*`)|(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<variable>\$\w*(?:\.\w+)*)|(?P<field>\.\w+(?:\.\w+)*|\.)|(?P<word>\w+)|(?P<sign>[()|,]|:?=))"
)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


def pieces(text: str) -> Iterator[tuple[str, bool]]:
    """Yield texts and actions in turn; ``{{-`` and ``-}}`` trim the texts beside them."""
    at, is_trimmed = 0, False
    for action in _ACTION.finditer(text):
        before = text[at : action.start()]
        if "{{" in before:
            raise BadQuery(f"an action is not closed: {before[before.index('{{') :][:60]}")
        before = before.lstrip() if is_trimmed else before
        yield before.rstrip() if action[1] else before, False
        yield " ".join(action[2].split()) if '"' not in action[2] and "`" not in action[2] else action[2].strip(), True
        at, is_trimmed = action.end(), bool(action[3])
    rest = text[at:]
    if "{{" in rest:
        raise BadQuery(f"an action is not closed: {rest[rest.index('{{') :][:60]}")
    yield rest.lstrip() if is_trimmed else rest, False


def tokens(text: str) -> Iterator[tuple[str, str]]:
    """Yield the tokens of an action with their kinds."""
    at = 0
    while text[at:].strip():
        token = TOKEN.match(text, at)
        if token is None:
            raise BadQuery(f"unexpected {text[at:].strip()[:20]!r} in {{{{ {text} }}}}")
        assert token.lastgroup is not None, "BUG: a token without a kind"
        yield token.lastgroup, token[token.lastgroup]
        at = token.end()


def unquoted(token: str) -> str:
    """Return the text that a token in quotes stands for."""
    if token.startswith("`"):
        return token[1:-1]
    return _ESCAPE.sub(lambda each: _escaped(each[1]), token[1:-1])


def _escaped(code: str) -> str:
    return chr(int(code[1:], 16)) if code[0] in "xu" and len(code) > 1 else _ESCAPES.get(code, code)
