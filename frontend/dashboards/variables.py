"""The variables of a dashboard: what can be chosen, what is chosen, and texts in which they are filled in.

A variable may use others, whatever their order. In an expression several values become a regular expression, one value
a text of PromQL. Enter by ``settle`` and ``fill``. Pure but for ``Catalogue``, which asks the app.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from frontend.dashboards.document import VariableSpec
from frontend.dashboards.limits import OPTIONS_MAX, TITLE_CHARS_MAX
from spm.errors import BadQuery, SpmError
from spm.limits import QUERY_TEXT_CHARS_MAX

ALL = "$__all"
AUTO = "$__auto"  # of an interval: whatever suits the range
_REFERENCE = re.compile(r"\$(\w+)|\$\{(\w+)(?::(\w+))?\}|\[\[(\w+)(?::(\w+))?\]\]")
_PUNCTUATION = re.compile(r"[!-/:-@\[-`{-~]")
_SPECIAL = re.compile(r"[\\^$.|?*+()\[\]{}]")  # to RE2; others stay, so that label="$name" works for most values
_EQUALS = re.compile(r"=\s*[\"'`]\Z")  # before a value that a matcher compares as it is: = or !=, no =~
_EQUALS_CHARS = 8


class Catalogue(Protocol):
    """Answers the queries of variables."""

    def find(self, query: str) -> list[str]:
        """List what a query like ``label_values(metric, label)`` finds."""


class NoCatalogue:
    """Finds nothing: for dashboards whose variables ask nothing."""

    def find(self, query: str) -> list[str]:
        """Find nothing."""
        return []


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable with its options, the chosen ones, and why there are none."""

    spec: VariableSpec
    options: Sequence[str]
    values: Sequence[str]
    is_all: bool = False
    problem: str = ""

    @property
    def is_asked(self) -> bool:
        """Whether a page has a field for it."""
        return not self.spec.hidden and self.spec.kind != "constant"

    @property
    def shown(self) -> str:
        """What titles and texts say in its place."""
        return "All" if self.is_all else " + ".join(self.values)


def settle(specs: Sequence[VariableSpec], given: Mapping[str, Sequence[str]], catalogue: Catalogue) -> list[Variable]:
    """Return the variables in their order, with the values that an address gives, else their first ones."""
    known: dict[str, Variable] = {}
    for spec in _by_need(specs):
        known[spec.name] = _settled(spec, given.get(spec.name, ()), known, catalogue)
    return [known[spec.name] for spec in specs]


def fill(
    text: str,
    variables: Sequence[Variable] | Mapping[str, Variable],
    *,
    style: str = "shown",
    most: int = TITLE_CHARS_MAX,
) -> str:
    """Replace ``$name``, ``${name:format}`` and ``[[name]]``; names that are no variable stay.

    A result of more signs than ``most`` is cut there and ends with “…”: a thousand values stand in a word's place.
    ``style`` is the format of those that name none: ``promql`` in expressions, ``markdown`` in texts, where a value
    that comes from an address must not become a link.
    """
    known = variables if isinstance(variables, Mapping) else {each.spec.name: each for each in variables}

    def value(match: re.Match[str]) -> str:
        plain, braced, own_style, bracketed, other_style = match.groups()
        variable = known.get(plain or braced or bracketed)
        if variable is None:
            return match[0]
        own = own_style or other_style
        if (
            style == "promql"
            and not own
            and _EQUALS.search(text[max(match.start() - _EQUALS_CHARS, 0) : match.start()])
        ):
            own = "equal"
        return _write(variable, style if style == "markdown" else own or style)

    parts, size, end = list[str](), 0, 0
    for match in _REFERENCE.finditer(text):
        parts += text[end : match.start()], value(match)
        size, end = size + len(parts[-2]) + len(parts[-1]), match.end()
        if size > most:
            break
    filled = "".join([*parts, text[end:]])
    return filled if len(filled) <= most else f"{filled[:most]}…"


def names_in(text: str) -> set[str]:
    """Return the names that a text refers to."""
    return {match[1] or match[2] or match[4] for match in _REFERENCE.finditer(text)}


def _by_need(specs: Sequence[VariableSpec]) -> list[VariableSpec]:
    """Put variables behind those that they use; of a circle, the first one comes first."""
    waiting, ready = list(specs), list[VariableSpec]()
    while waiting:
        open_names = {each.name for each in waiting}
        free = next((each for each in waiting if not (names_in(each.query) & open_names - {each.name})), waiting[0])
        waiting.remove(free)
        ready.append(free)
    return ready


def _settled(spec: VariableSpec, given: Sequence[str], known: Mapping[str, Variable], catalogue: Catalogue) -> Variable:
    problem = ""
    try:
        options = _options(spec, known, catalogue)
    except SpmError as error:
        options, problem = [], str(error)
    if spec.kind in ("text", "constant"):
        return Variable(spec, (), [*given[:1]] if given and spec.kind == "text" else [spec.query])
    wanted = list(given) or list(spec.values)
    if ALL in wanted and spec.all:
        return Variable(spec, options, options, is_all=True, problem=problem)
    chosen = [each for each in wanted if each in options] or (wanted if given or not options else [])
    if not chosen and spec.all and not spec.values:
        return Variable(spec, options, options, is_all=True, problem=problem)
    chosen = (chosen or options[:1])[: None if spec.multi else 1]
    return Variable(spec, options, chosen, problem=problem)


def _options(spec: VariableSpec, known: Mapping[str, Variable], catalogue: Catalogue) -> list[str]:
    if spec.kind == "query":
        query = fill(spec.query, known, style="promql", most=QUERY_TEXT_CHARS_MAX)
        if len(query) > QUERY_TEXT_CHARS_MAX:
            raise BadQuery(f"with its variables, the query has more than {QUERY_TEXT_CHARS_MAX:,} signs")
        texts = catalogue.find(query)
    elif spec.kind in ("custom", "interval"):
        texts = [each.replace("\\,", ",").strip() for each in re.split(r"(?<!\\),", spec.query) if each.strip()]
        texts = [each.partition(" : ")[2].strip() or each for each in texts]
    else:
        return []
    return list(dict.fromkeys(filter(None, pick(texts, spec.regex))))[:OPTIONS_MAX]


def pick(texts: Sequence[str], regex: str) -> Sequence[str]:
    """Return the part of each text that an expression picks: its group “value”, else its first, else the whole text.

    Texts that do not match are left out. RE2 evaluates the expression, in time that grows with the text alone.
    """
    pattern = regex[1:].rpartition("/")[0] if regex.startswith("/") and regex.count("/") > 1 else regex
    if not pattern:
        return texts
    pattern = re.sub(r"\(\?<(?=[A-Za-z])", "(?P<", pattern)
    try:
        compiled = re.compile(pattern)  # for the numbers of its groups alone
        group = compiled.groupindex.get("value", min(compiled.groups, 1))
        every = pa.array(texts, pa.string())
        matching = every.filter(pc.match_substring_regex(every, pattern=pattern))
        if not group:
            return list(matching.to_pylist())
        whole = rf"(?s)\A.*?(?:{pattern}).*\z"
        parts = pc.replace_substring_regex(matching, pattern=whole, replacement=rf"\{group}")
    except (re.error, pa.ArrowInvalid, RecursionError, OverflowError) as error:
        raise BadQuery(f"the regular expression {regex} is not valid: {error}") from error
    return list(parts.to_pylist())


def _write(variable: Variable, style: str) -> str:
    values = ["$__interval" if each == AUTO else each for each in variable.values]
    if variable.is_all and variable.spec.all_value and style != "shown":
        return variable.spec.all_value
    if style == "markdown":
        return _PUNCTUATION.sub(r"\\\g<0>", variable.shown.replace("\n", " "))
    if style == "equal" and len(values) == 1:
        return _quoted(values[0])
    if style in ("promql", "regex", "equal"):
        if variable.is_all and not values:
            return ".*"
        several = variable.is_all or variable.spec.multi
        if not several and style != "regex":
            only = values[0] if values else ""
            return only if variable.spec.kind in ("interval", "text", "constant") else _quoted(only)
        escaped = [_SPECIAL.sub(r"\\\g<0>", each) for each in values]
        text = escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"
        return text if style == "regex" else _quoted(text)
    joined = {"pipe": "|", "csv": ",", "raw": ",", "glob": ","}
    return joined[style].join(values) if style in joined else variable.shown


def _quoted(text: str) -> str:
    """Write a text as it stands between quotes of PromQL."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
