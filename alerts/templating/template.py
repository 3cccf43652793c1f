"""Templates: text with ``{{ … }}``, parsed once and rendered for each alert. Pure.

    {{ $labels.host }}  {{ $value | humanize }}  {{ if gt $value 5.0 }}…{{ else }}…{{ end }}

It is the part of Go's template language that alert rules use; queries, loops and definitions are refused, so that the
text depends on nothing but the alert and ends soon. Enter by ``render``; ``check`` says whether a template is valid.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from alerts.templating.functions import FUNCTIONS, Value, is_true, text_of
from spm.errors import BadQuery

TEMPLATE_CHARS_MAX = 4_000  # longer texts belong into the runbook
TEXT_CHARS_MAX = 8_000  # of a rendered text: it goes into mails and series
_DEPTH_MAX = 20
_ACTION = re.compile(
    r"\{\{(-(?=\s))?((?:\"(?:[^\"\\\n]|\\.)*\"|`[^`]*`|/\*.*?\*/|[^\"`}]|\}(?!\}))*?)((?<=\s)-)?\}\}", re.DOTALL
)
_TOKEN = re.compile(
    r"\s*(?:(?P<string>\"(?:[^\"\\\n]|\\.)*\"|`[^`]*`)|(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<variable>\$\w*(?:\.\w+)*)|(?P<field>\.\w+(?:\.\w+)*|\.)|(?P<word>\w+)|(?P<sign>[()|,]|:?=))"
)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_REFUSED = {
    "range": "loops",
    "define": "definitions",
    "template": "definitions",
    "block": "definitions",
    "break": "loops",
    "continue": "loops",
    "query": "queries",
    "first": "queries",
    "value": "queries",
    "label": "queries",
    "sortByLabel": "queries",
}


@dataclass(frozen=True, slots=True)
class AlertFacts:
    """What a template sees of an alert."""

    labels: Mapping[str, str]
    value: float
    external_labels: Mapping[str, str] = field(default_factory=dict)
    external_url: str = ""


@dataclass(frozen=True, slots=True)
class _Scope:
    facts: AlertFacts
    dot: Value | AlertFacts


Evaluate = Callable[[_Scope], Value]
Write = Callable[[_Scope], str]


def render(text: str, facts: AlertFacts) -> str:
    """Render a template; one that fails becomes a text that says why, as in Prometheus."""
    try:
        return "".join(part(_Scope(facts, facts)) for part in _parsed(text))[:TEXT_CHARS_MAX]
    except BadQuery as error:
        return f"<error expanding template: {error}>"


def render_all(texts: Mapping[str, str], facts: AlertFacts) -> dict[str, str]:
    """Render a mapping of templates."""
    return {name: render(text, facts) if "{{" in text else text for name, text in texts.items()}


def check(text: str) -> None:
    """Raise ``BadQuery`` if a template is not valid."""
    if len(text) > TEMPLATE_CHARS_MAX:
        raise BadQuery(f"a template has at most {TEMPLATE_CHARS_MAX} characters; this one has {len(text)}")
    _parsed(text)


@lru_cache(maxsize=2_000)
def _parsed(text: str) -> tuple[Write, ...]:
    return _Parser(text).parse()


class _Parser:
    """Reads the pieces of a template from left to right: texts and actions in turn."""

    def __init__(self, text: str) -> None:
        self._pieces = list(_pieces(text))
        self._at = 0

    def parse(self) -> tuple[Write, ...]:
        """Parse the whole template."""
        parts, end = self._block(0)
        if end is not None:
            raise BadQuery(f"unexpected {{{{ {end} }}}}: there is nothing that it ends")
        return parts

    def _block(self, depth: int) -> tuple[tuple[Write, ...], str | None]:
        """Parse up to the action that ends the block; returns that action, None at the end of the text."""
        if depth > _DEPTH_MAX:
            raise BadQuery(f"a template is nested at most {_DEPTH_MAX} deep")
        parts = list[Write]()
        while self._at < len(self._pieces):
            piece, is_action = self._pieces[self._at]
            self._at += 1
            if not is_action:
                parts.append(_literal(piece))
                continue
            word, _, rest = piece.partition(" ")
            if word in ("end", "else"):
                return tuple(parts), piece
            if word in ("if", "with"):
                parts.append(self._condition(word, rest, depth))
            elif piece and not piece.startswith("/*"):
                parts.append(_printed(_Pipeline(piece).parse()))
        return tuple(parts), None

    def _condition(self, word: str, rest: str, depth: int) -> Write:
        condition = _Pipeline(rest).parse()
        then, end = self._block(depth + 1)
        otherwise: tuple[Write, ...] = ()
        if end is not None and end.startswith("else"):
            again, _, further = end.removeprefix("else").strip().partition(" ")
            if again in ("if", "with"):
                otherwise, end = (self._condition(again, further, depth + 1),), "end"
            elif again:
                raise BadQuery(f"unexpected {{{{ {end} }}}}")
            else:
                otherwise, end = self._block(depth + 1)
        if end != "end":
            raise BadQuery(f"{{{{ {word} … }}}} has no {{{{ end }}}}")
        return _chosen(condition, then, otherwise, is_with=word == "with")


class _Pipeline:
    """Reads one pipeline: commands joined by ``|``, each the last argument of the next."""

    def __init__(self, text: str) -> None:
        self._text, self._tokens, self._at = text, list(_tokens(text)), 0

    def parse(self) -> Evaluate:
        value = self._pipeline(0)
        if self._at < len(self._tokens):
            raise self._unexpected()
        return value

    def _pipeline(self, depth: int) -> Evaluate:
        if depth > _DEPTH_MAX:
            raise BadQuery(f"a template is nested at most {_DEPTH_MAX} deep")
        value = self._command(depth, None)
        while self._sees("|"):
            self._at += 1
            value = self._command(depth, value)
        return value

    def _command(self, depth: int, last: Evaluate | None) -> Evaluate:
        kind, token = self._here
        if kind == "word" and token not in ("true", "false"):
            self._at += 1
            return _call(token, [*self._arguments(depth), *([last] if last else [])])
        if last is not None:
            raise BadQuery(f"{token!r} is not a function, so nothing can be passed to it by |")
        return self._argument(depth)

    def _arguments(self, depth: int) -> list[Evaluate]:
        arguments = list[Evaluate]()
        while self._at < len(self._tokens) and not self._sees("|") and not self._sees(")"):
            arguments.append(self._argument(depth))
        return arguments

    def _argument(self, depth: int) -> Evaluate:
        kind, token = self._here
        self._at += 1
        if token == "(":
            value = self._pipeline(depth + 1)
            if not self._sees(")"):
                raise BadQuery(f"a bracket is not closed in {{{{ {self._text} }}}}")
            self._at += 1
            return value
        if kind == "string":
            return _constant(_unquoted(token))
        if kind == "number":
            return _constant(float(token) if re.search(r"[.eE]", token) else int(token))
        if kind == "variable":
            return _variable(token)
        if kind == "field":
            return _field(token[1:].split(".") if token != "." else [])
        if kind == "word":
            return _constant(token == "true") if token in ("true", "false") else _call(token, [])
        self._at -= 1
        raise self._unexpected()

    @property
    def _here(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("end", "the end")

    def _sees(self, sign: str) -> bool:
        return self._here == ("sign", sign)

    def _unexpected(self) -> BadQuery:
        return BadQuery(f"unexpected {self._here[1]} in {{{{ {self._text} }}}}")


def _pieces(text: str) -> Iterator[tuple[str, bool]]:
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


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    while text[at:].strip():
        token = _TOKEN.match(text, at)
        if token is None:
            raise BadQuery(f"unexpected {text[at:].strip()[:20]!r} in {{{{ {text} }}}}")
        assert token.lastgroup is not None, "BUG: a token without a kind"
        yield token.lastgroup, token[token.lastgroup]
        at = token.end()


def _unquoted(token: str) -> str:
    if token.startswith("`"):
        return token[1:-1]
    return _ESCAPE.sub(lambda each: _escaped(each[1]), token[1:-1])


def _escaped(code: str) -> str:
    return chr(int(code[1:], 16)) if code[0] in "xu" and len(code) > 1 else _ESCAPES.get(code, code)


def _literal(text: str) -> Write:
    return lambda _: text


def _constant(value: Value) -> Evaluate:
    return lambda _: value


def _printed(evaluate: Evaluate) -> Write:
    return lambda scope: text_of(evaluate(scope))


def _chosen(condition: Evaluate, then: Sequence[Write], otherwise: Sequence[Write], *, is_with: bool) -> Write:
    def write(scope: _Scope) -> str:
        value = condition(scope)
        if not is_true(value):
            return "".join(part(scope) for part in otherwise)
        inner = _Scope(scope.facts, value) if is_with else scope
        return "".join(part(inner) for part in then)

    return write


def _call(name: str, arguments: Sequence[Evaluate]) -> Evaluate:
    if name in _REFUSED:
        raise BadQuery(f"{name} is not possible here: a text has no {_REFUSED[name]}, it depends on the alert alone")
    if name not in FUNCTIONS:
        raise BadQuery(f"there is no function {name}; there are {', '.join(sorted(FUNCTIONS))}")
    function, least, most = FUNCTIONS[name]
    if not least <= len(arguments) <= most:
        wanted = str(least) if least == most else f"{least} to {most}"
        raise BadQuery(f"{name} takes {wanted} arguments, not {len(arguments)}")
    return lambda scope: function(*(argument(scope) for argument in arguments))


_FACTS: Mapping[str, Callable[[AlertFacts], Value]] = {
    "labels": lambda facts: facts.labels,
    "value": lambda facts: facts.value,
    "externalLabels": lambda facts: facts.external_labels,
    "externalURL": lambda facts: facts.external_url,
}


def _variable(token: str) -> Evaluate:
    name, *path = token[1:].split(".")
    if not name:
        return _field(path)
    if name not in _FACTS:
        raise BadQuery(f"there is no variable ${name}; there are {', '.join(f'${each}' for each in _FACTS)}")
    read = _FACTS[name]
    _check_path(name, path)
    return lambda scope: _within(read(scope.facts), path)


def _field(path: Sequence[str]) -> Evaluate:
    if not path:
        return lambda scope: _plain(scope.dot)
    name = path[0][:1].lower() + path[0][1:]
    if name not in _FACTS:
        raise BadQuery(f"there is no field .{path[0]}; there are .Labels, .Value, .ExternalLabels, .ExternalURL")
    read = _FACTS[name]
    _check_path(name, path[1:])
    return lambda scope: _within(read(scope.facts), path[1:])


def _plain(dot: Value | AlertFacts) -> Value:
    if isinstance(dot, AlertFacts):
        raise BadQuery("the dot alone means something inside {{ with … }} only")
    return dot


def _check_path(name: str, path: Sequence[str]) -> None:
    if len(path) > (1 if name.endswith("abels") else 0):
        raise BadQuery(f"{name} has no field {path[-1]}")


def _within(value: Value, path: Sequence[str]) -> Value:
    if not path:
        return value
    assert isinstance(value, Mapping), "BUG: a path into a value that has no fields"
    return value.get(path[0], "")
