"""Templates: text with ``{{ … }}``, parsed once and rendered for each alert. Pure.

    {{ $labels.host }}  {{ $value | humanize }}  {{ if gt $value 5.0 }}…{{ else }}…{{ end }}
    {{ range query "up" }}{{ .Labels.job }}: {{ .Value }} {{ end }}  {{ define "x" }}…{{ end }}{{ template "x" . }}

It is Go's template language as alert rules use it. A template reads what the alert's facts hold and what their function
``query`` answers, nothing else; its steps, its text and its queries are bounded. Enter by ``render``; ``check`` says
whether a template is valid.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from alerts.templating import limits
from alerts.templating.functions import FUNCTIONS, AlertFacts, Sample, Value, is_true, items_of, text_of
from alerts.templating.tokens import TOKEN, pieces, tokens, unquoted
from spm.errors import BadQuery, SpmError

_DEPTH_MAX = 20
_DECLARED = re.compile(r"\s*\$(\w+)\s*(?:,\s*\$(\w+)\s*)?(:?=)\s*(.*)", re.DOTALL)
_VALUE = re.compile(r"\$value|\$?\.Value")


@dataclass(slots=True)
class _Budget:
    """What is left of a rendering: steps, characters and queries."""

    steps: int = limits.TEMPLATE_STEPS_MAX
    chars: int = limits.TEXT_CHARS_MAX
    queries: int = limits.TEMPLATE_QUERIES_MAX

    def take_step(self) -> None:
        """Count a step."""
        self.steps -= 1
        if self.steps < 0:
            raise BadQuery(f"the template takes more than {limits.TEMPLATE_STEPS_MAX} steps")


class _Stop(Exception):
    """Ends a rendering whose text is long enough, or a round of a loop."""

    def __init__(self, word: str = "") -> None:
        super().__init__(word)
        self.word = word


@dataclass(frozen=True, slots=True)
class _Scope:
    """What an action sees: the alert, the dot, the variables (each in a cell that ``=`` fills anew), and the budget."""

    facts: AlertFacts
    dot: Value
    definitions: "Mapping[str, Sequence[Write]]"
    budget: _Budget
    out: list[str]
    variables: dict[str, list[Value]] = field(default_factory=dict)
    depth: int = 0

    def within(self, dot: Value, variables: Mapping[str, Value]) -> "_Scope":
        """Return the scope of an inner block, with more variables."""
        inner = self.variables | {name: [value] for name, value in variables.items()}
        return replace(self, dot=dot, variables=inner)

    def write(self, text: str) -> None:
        """Add to the text."""
        self.out.append(text[: self.budget.chars])
        self.budget.chars -= len(text)
        if self.budget.chars <= 0:
            raise _Stop


Evaluate = Callable[[_Scope], Value]
Write = Callable[[_Scope], None]


@dataclass(frozen=True, slots=True)
class _Template:
    """A parsed template: what it writes, its definitions by name, and what of the data it reads."""

    parts: Sequence[Write]
    definitions: Mapping[str, Sequence[Write]]
    reads: "Reads"


@dataclass(slots=True)
class Reads:
    """Whether a template reads the value of the alert, and whether it queries."""

    value: bool = False
    query: bool = False


def render(text: str, facts: AlertFacts) -> str:
    """Render a template; one that fails becomes a text that says why, as in Prometheus."""
    out = list[str]()
    try:
        parsed = _parsed(text)
        _write_all(parsed.parts, _Scope(facts, facts, parsed.definitions, _Budget(), out))
    except _Stop:
        pass
    except (SpmError, RecursionError) as error:
        return f"<error expanding template: {error}>"
    return "".join(out)


def render_all(texts: Mapping[str, str], facts: AlertFacts) -> dict[str, str]:
    """Render a mapping of templates."""
    return {name: render(text, facts) if "{{" in text else text for name, text in texts.items()}


def check(text: str, *, may_query: bool = True) -> None:
    """Raise ``BadQuery`` if a template is not valid."""
    if len(text) > limits.TEMPLATE_CHARS_MAX:
        raise BadQuery(f"a template has at most {limits.TEMPLATE_CHARS_MAX} characters; this one has {len(text)}")
    if reads(text).query and not may_query:
        raise BadQuery("a label cannot query: it names the alert, so it depends on the alert alone; use an annotation")


def reads(text: str) -> Reads:
    """Return what of the data a template reads; raises ``BadQuery`` if it is not valid."""
    return _parsed(text).reads


@lru_cache(maxsize=2_000)
def _parsed(text: str) -> _Template:
    return _Parser(text).parse()


class _Parser:
    """Reads the pieces of a template from left to right: texts and actions in turn."""

    def __init__(self, text: str) -> None:
        self._pieces = list(pieces(text))
        self._at = 0
        self._definitions: dict[str, Sequence[Write]] = {}
        self._used: set[str] = set()
        self._reads = Reads()

    def parse(self) -> _Template:
        """Parse the whole template."""
        parts, end = self._block(_Names(is_alert=True), 0)
        if end is not None:
            raise BadQuery(f"unexpected {{{{ {end} }}}}: there is nothing that it ends")
        if missing := sorted(self._used - set(self._definitions)):
            raise BadQuery(f"there is no definition of the template {missing[0]!r}")
        return _Template(parts, self._definitions, self._reads)

    def _block(self, names: "_Names", depth: int) -> tuple[tuple[Write, ...], str | None]:
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
            if piece and not piece.startswith("/*"):
                parts += self._action(word, rest, piece, names, depth)
        return tuple(parts), None

    def _action(self, word: str, rest: str, piece: str, names: "_Names", depth: int) -> list[Write]:
        if word in ("if", "with", "range"):
            return [self._condition(word, rest, names.inner(), depth)]
        if word in ("define", "block"):
            return self._define(word, rest, names, depth)
        if word == "template":
            return [self._inclusion(rest, names)]
        if word in ("break", "continue"):
            if not names.is_looped:
                raise BadQuery(f"{{{{ {word} }}}} stands outside of a loop")
            return [_stop(word)]
        if declared := _DECLARED.fullmatch(piece):
            return [self._declaration(declared, names)]
        return [_printed(self._pipeline(piece, names))]

    def _pipeline(self, text: str, names: "_Names") -> Evaluate:
        return _Pipeline(text, names, self._reads).parse()

    def _declaration(self, declared: re.Match[str], names: "_Names") -> Write:
        name, second, sign, text = declared.groups()
        if second:
            raise BadQuery("only {{ range … }} declares two variables")
        evaluate = self._pipeline(text, names)
        if sign == ":=":
            names.variables.add(name)
        elif name not in names.variables:
            raise BadQuery(f"there is no variable ${name} to set; declare it with :=")
        return _declared(name, evaluate) if sign == ":=" else _assigned(name, evaluate)

    def _define(self, word: str, rest: str, names: "_Names", depth: int) -> list[Write]:
        """Parse a definition, which is written where it is used; a block is used where it stands."""
        name, argument = _name_of(word, rest)
        if depth and word == "define":
            raise BadQuery("{{ define }} stands at the top of a template only")
        if len(self._definitions) >= limits.TEMPLATE_DEFINITIONS_MAX:
            raise BadQuery(f"a template has at most {limits.TEMPLATE_DEFINITIONS_MAX} definitions")
        parts, end = self._block(_Names(), depth + 1)
        if end != "end":
            raise BadQuery(f"{{{{ {word} … }}}} has no {{{{ end }}}}")
        self._definitions[name] = parts
        return [_included(name, self._pipeline(argument, names))] if word == "block" else []

    def _inclusion(self, rest: str, names: "_Names") -> Write:
        name, argument = _name_of("template", rest)
        self._used.add(name)
        return _included(name, self._pipeline(argument, names) if argument else None)

    def _condition(self, word: str, rest: str, names: "_Names", depth: int) -> Write:
        declared = _DECLARED.fullmatch(rest)
        own = [name for name in declared.group(1, 2) if name] if declared else []
        if len(own) > 1 and word != "range":
            raise BadQuery("only {{ range … }} declares two variables")
        condition = self._pipeline(declared[4] if declared else rest, names)
        inside = names.inner(*own, is_alert=names.is_alert and word == "if", is_looped=word == "range")
        then, end = self._block(inside, depth + 1)
        otherwise: tuple[Write, ...] = ()
        if end is not None and end.startswith("else"):
            again, _, further = end.removeprefix("else").strip().partition(" ")
            if again in ("if", "with"):
                otherwise, end = (self._condition(again, further, names.inner(*own), depth + 1),), "end"
            elif again:
                raise BadQuery(f"unexpected {{{{ {end} }}}}")
            else:
                otherwise, end = self._block(names.inner(*own), depth + 1)
        if end != "end":
            raise BadQuery(f"{{{{ {word} … }}}} has no {{{{ end }}}}")
        if word == "range":
            return _repeated(condition, own, then, otherwise)
        return _chosen(condition, own, then, otherwise, is_with=word == "with")


class _Names:
    """What is known where an action stands: its variables, and whether the dot is the alert itself."""

    def __init__(self, variables: set[str] | None = None, *, is_alert: bool = False, is_looped: bool = False) -> None:
        self.variables = variables or set()
        self.is_alert, self.is_looped = is_alert, is_looped

    def inner(self, *variables: str, is_alert: bool | None = None, is_looped: bool = False) -> "_Names":
        """Return those of a block inside, which may have more variables."""
        alert = self.is_alert if is_alert is None else is_alert
        return _Names({*self.variables, *variables}, is_alert=alert, is_looped=is_looped or self.is_looped)


class _Pipeline:
    """Reads one pipeline: commands joined by ``|``, each the last argument of the next."""

    def __init__(self, text: str, names: _Names, reads: Reads) -> None:
        self._text, self._tokens, self._at = text, list(tokens(text)), 0
        self._names, self._reads = names, reads

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
            return self._call(token, [*self._arguments(depth), *([last] if last else [])])
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
            return _constant(unquoted(token))
        if kind == "number":
            return _constant(float(token) if re.search(r"[.eE]", token) else int(token))
        self._reads.value |= kind in ("variable", "field") and bool(_VALUE.fullmatch(token))
        if kind == "variable":
            return _variable(token, self._names)
        if kind == "field":
            return _field(token[1:].split(".") if token != "." else [], self._names)
        if kind == "word":
            return _constant(token == "true") if token in ("true", "false") else self._call(token, [])
        self._at -= 1
        raise self._unexpected()

    def _call(self, name: str, arguments: Sequence[Evaluate]) -> Evaluate:
        self._reads.query |= name == "query"
        return _call(name, arguments)

    @property
    def _here(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("end", "the end")

    def _sees(self, sign: str) -> bool:
        return self._here == ("sign", sign)

    def _unexpected(self) -> BadQuery:
        return BadQuery(f"unexpected {self._here[1]} in {{{{ {self._text} }}}}")


def _name_of(word: str, rest: str) -> tuple[str, str]:
    """Split what follows ``define`` and ``template``: a name in quotes, and the rest."""
    token = TOKEN.match(rest)
    if token is None or token.lastgroup != "string":
        raise BadQuery(f'{{{{ {word} }}}} needs a name in quotes: {{{{ {word} "name" }}}}')
    return unquoted(token["string"]), rest[token.end() :].strip()


def _write_all(parts: Sequence[Write], scope: _Scope) -> None:
    for part in parts:
        part(scope)


def _literal(text: str) -> Write:
    return lambda scope: scope.write(text)


def _constant(value: Value) -> Evaluate:
    return lambda _: value


def _printed(evaluate: Evaluate) -> Write:
    return lambda scope: scope.write(text_of(evaluate(scope)))


def _stop(word: str) -> Write:
    def write(_: _Scope) -> None:
        raise _Stop(word)

    return write


def _declared(name: str, evaluate: Evaluate) -> Write:
    def write(scope: _Scope) -> None:
        scope.variables[name] = [evaluate(scope)]

    return write


def _assigned(name: str, evaluate: Evaluate) -> Write:
    def write(scope: _Scope) -> None:
        scope.variables[name][0] = evaluate(scope)

    return write


def _chosen(
    condition: Evaluate, own: Sequence[str], then: Sequence[Write], otherwise: Sequence[Write], *, is_with: bool
) -> Write:
    def write(scope: _Scope) -> None:
        value = condition(scope)
        is_chosen = is_true(value)
        inner = scope.within(value if is_with and is_chosen else scope.dot, dict.fromkeys(own, value))
        _write_all(then if is_chosen else otherwise, inner)

    return write


def _repeated(evaluate: Evaluate, own: Sequence[str], then: Sequence[Write], otherwise: Sequence[Write]) -> Write:
    """Write a loop: ``own`` has the variable of the element, or those of its key and of the element."""

    def write(scope: _Scope) -> None:
        items = items_of(evaluate(scope))
        for key, value in items:
            scope.budget.take_step()
            variables = dict(zip(own, (key, value) if len(own) > 1 else (value,), strict=False))
            try:
                _write_all(then, scope.within(value, variables))
            except _Stop as stop:
                if stop.word == "break":
                    break
                if stop.word != "continue":
                    raise
        if not items:
            _write_all(otherwise, scope.within(scope.dot, {}))

    return write


def _included(name: str, argument: Evaluate | None) -> Write:
    """Write a definition with its argument as the dot. It sees none of the variables around it."""

    def write(scope: _Scope) -> None:
        if scope.depth >= _DEPTH_MAX:
            raise BadQuery(f"definitions use one another at most {_DEPTH_MAX} deep")
        scope.budget.take_step()
        dot: Value = argument(scope) if argument is not None else None
        inner = replace(scope, dot=dot, variables={}, depth=scope.depth + 1)
        _write_all(scope.definitions[name], inner)

    return write


def _call(name: str, arguments: Sequence[Evaluate]) -> Evaluate:
    if name != "query" and name not in FUNCTIONS:
        raise BadQuery(f"there is no function {name}; there are {', '.join(sorted([*FUNCTIONS, 'query']))}")
    function, least, most = FUNCTIONS.get(name, (None, 1, 1))
    if not least <= len(arguments) <= most:
        wanted = str(least) if least == most else f"{least} to {most}"
        raise BadQuery(f"{name} takes {wanted} arguments, not {len(arguments)}")
    if function is None:
        return lambda scope: _answer(scope, text_of(arguments[0](scope)))
    return lambda scope: function(*(argument(scope) for argument in arguments))


def _answer(scope: _Scope, expr: str) -> Value:
    if scope.facts.query is None:
        raise BadQuery("there is nothing to query here")
    scope.budget.queries -= 1
    if scope.budget.queries < 0:
        raise BadQuery(f"a template makes at most {limits.TEMPLATE_QUERIES_MAX} queries")
    return list(scope.facts.query(expr))


_FACTS: Mapping[str, Callable[[AlertFacts], Value]] = {
    "labels": lambda facts: facts.labels,
    "value": lambda facts: facts.value,
    "externalLabels": lambda facts: facts.external_labels,
    "externalURL": lambda facts: facts.external_url,
}


def _variable(token: str, names: _Names) -> Evaluate:
    name, *path = token[1:].split(".")
    if not name:
        return _path(lambda scope: scope.facts, path)
    if name in names.variables:
        return _path(lambda scope: scope.variables[name][0], path)
    if name not in _FACTS:
        known = ", ".join(f"${each}" for each in [*_FACTS, *sorted(names.variables)])
        raise BadQuery(f"there is no variable ${name}; there are {known}")
    read = _FACTS[name]
    _check_path(name, path)
    return _path(lambda scope: read(scope.facts), path)


def _field(path: Sequence[str], names: _Names) -> Evaluate:
    """Read a path from the dot; what the alert itself has is known before, and checked."""
    if names.is_alert and path:
        _check_path(_fact_of(path[0]), path[1:])
    return _path(lambda scope: scope.dot, path)


def _path(read: Callable[[_Scope], Value], path: Sequence[str]) -> Evaluate:
    def evaluate(scope: _Scope) -> Value:
        value = read(scope)
        for name in path:
            value = _FACTS[_fact_of(name)](value) if isinstance(value, AlertFacts) else _member(value, name)
        return value

    return evaluate


def _fact_of(name: str) -> str:
    fact = name[:1].lower() + name[1:]
    if fact not in _FACTS:
        raise BadQuery(f"there is no field .{name}; there are .Labels, .Value, .ExternalLabels, .ExternalURL")
    return fact


def _member(value: Value, name: str) -> Value:
    if isinstance(value, Sample) and name in ("Labels", "Value"):
        return value.labels if name == "Labels" else value.value
    if isinstance(value, Mapping):
        return value.get(name, "" if all(isinstance(each, str) for each in value.values()) else None)
    raise BadQuery(f"{text_of(value)!r} has no field {name}")


def _check_path(name: str, path: Sequence[str]) -> None:
    if len(path) > (1 if name.endswith("abels") else 0):
        raise BadQuery(f"{name} has no field {path[-1]}")
