"""Parses scripts into commands: samples to load, expressions to evaluate, and the expected results.

The format is documented beside Prometheus' own scripts. Values are written as `1+2x3` (four values), `_` (none),
`stale` and numbers; what only other kinds of samples have (native histograms, in double braces, and start timestamps)
is recognised and kept apart, since samples here are floats.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from spm.query.fake import STALE
from spm.query.promql.syntax import lexer
from spm.query.promql.syntax.grammar import parse_tree
from spm.query.promql.syntax.tree import SelectorExpression
from spm.query.request.batches import METRIC_NAME

Labels = dict[str, str]

NATIVE, STARTS = "native histograms", "start timestamps"  # what samples here do not have

_EVAL = re.compile(r"eval(?:_(?P<old>fail|warn|info|ordered))?\s+(?P<kind>instant|range)\s+(?P<rest>.*)", re.S)
_INSTANT = re.compile(r"at\s+(?P<at>\S+)\s+(?P<expr>.*)", re.S)
_RANGE = re.compile(r"from\s+(?P<start>\S+)\s+to\s+(?P<end>\S+)\s+step\s+(?P<step>\S+)\s+(?P<expr>.*)", re.S)
_EXPECT = re.compile(r"expect\s+(?P<kind>\w+)(?:\s+(?P<how>msg|regex)\s*:\s*(?P<text>.*))?(?P<rest>.*)")
_VALUES = re.compile(
    r"(?P<start>_|stale|[+-]?(?:NaN|Inf|(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?))"
    r"(?P<step>[+-](?:NaN|Inf|(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?))?(?:x(?P<times>\d+))?",
    re.IGNORECASE,
)


class BadScript(Exception):
    """A line is not a command."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """One series of a `load`, values from time 0 on, None where there is none; `beyond` names samples beyond floats."""

    labels: Labels
    values: list[float | None]
    beyond: str = ""


@dataclass(frozen=True, slots=True)
class Load:
    """Series to add, with the interval of their values."""

    interval_ms: int
    series: list[Loaded]


@dataclass(frozen=True, slots=True)
class Clear:
    """Drops everything that was loaded."""


@dataclass(frozen=True, slots=True)
class ExpectedMessage:
    """An expected failure, warning or info: any, one with this text, or one that matches."""

    text: str | None = None
    regex: bool = False

    def accepts(self, message: str) -> bool:
        """Whether a message is the expected one."""
        if self.text is None:
            return True
        return re.search(self.text, message) is not None if self.regex else message == self.text


@dataclass(frozen=True, slots=True)
class Eval:
    """One evaluation and its expected result."""

    line: int
    expr: str
    start_ms: int
    end_ms: int
    step_ms: int  # 0 for an instant query
    fail: ExpectedMessage | None = None
    warnings: list[ExpectedMessage] = field(default_factory=list)
    infos: list[ExpectedMessage] = field(default_factory=list)
    silent: tuple[str, ...] = ()  # "warn", "info": there must be none
    ordered: bool = False
    text: str | None = None
    window: tuple[int, int, int] | None = None  # start, end and step of an expected range vector
    scalar: float | None = None
    series: list[Loaded] = field(default_factory=list)


Command = Load | Clear | Eval


def commands(text: str) -> Iterator[tuple[int, Command]]:
    """Return the (line number, command) pairs of a script."""
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        first = at
        at += 1
        head = _bare(lines[first])
        if not head:
            continue
        body: list[tuple[int, str]] = []
        while at < len(lines) and (lines[at][:1] in (" ", "\t") or not lines[at].strip() or lines[at][:1] == "#"):
            if not lines[at].strip():
                break
            if _bare(lines[at]):
                body.append((at + 1, _bare(lines[at])))
            at += 1
        yield first + 1, _command(first + 1, head, body)


def _bare(line: str) -> str:
    stripped = line.strip()
    return "" if stripped.startswith("#") else stripped


def _command(number: int, head: str, body: list[tuple[int, str]]) -> Command:
    word = head.split()[0]
    if head == "clear":
        return Clear()
    if word in ("load", "load_with_nhcb"):
        series = [_series(line) for _, line in body]
        if word == "load_with_nhcb":
            series += [_native_histogram(each) for each in series]
        return Load(duration_ms(head.split()[1]), series)
    if word.startswith("eval"):
        return _eval(number, head, body)
    raise BadScript(f"line {number}: {head}")


def _native_histogram(series: Loaded) -> Loaded:
    """Return the native histogram that a classic bucket also stands for."""
    name = re.sub(r"_(bucket|sum|count)$", "", series.labels.get(METRIC_NAME, ""))
    labels = {key: value for key, value in series.labels.items() if key != "le"} | {METRIC_NAME: name}
    return Loaded(labels, [], beyond=NATIVE)


def _eval(number: int, head: str, body: list[tuple[int, str]]) -> Eval:
    match = _EVAL.fullmatch(head)
    times = match and (_INSTANT if match["kind"] == "instant" else _RANGE).fullmatch(match["rest"])
    if not match or not times:
        raise BadScript(f"line {number}: {head}")
    if match["kind"] == "instant":
        evaluation = Eval(number, times["expr"], duration_ms(times["at"]), duration_ms(times["at"]), 0)
    else:
        start, end, step = (duration_ms(times[name]) for name in ("start", "end", "step"))
        evaluation = Eval(number, times["expr"], start, end, step)
    fields = {name: getattr(evaluation, name) for name in Eval.__slots__}
    old = match["old"]
    if old == "fail":
        fields["fail"] = ExpectedMessage()
    elif old == "ordered":
        fields["ordered"] = True
    elif old:
        fields["warnings" if old == "warn" else "infos"] = [ExpectedMessage()]
    for _, line in body:
        _expect(line, fields)
    return Eval(**fields)


def _expect(line: str, fields: dict[str, object]) -> None:
    for former, regex in (("expected_fail_message", False), ("expected_fail_regexp", True)):
        if line.startswith(former):
            fields["fail"] = ExpectedMessage(line.removeprefix(former).strip(), regex)
            return
    if line.startswith("expect string"):
        fields["text"] = str(lexer.tokenize(line.removeprefix("expect string").strip())[0].value)
    elif line.startswith("expect range vector"):
        tokens = line.split()
        fields["window"] = tuple(duration_ms(tokens[place]) for place in (4, 6, 8))
    elif line.startswith("expect "):
        _expect_message(line, fields)
    elif (number := _number(line)) is not None:
        fields["scalar"] = number
    else:
        fields["series"] = [*fields["series"], _series(line)]  # type: ignore[misc]


def _expect_message(line: str, fields: dict[str, object]) -> None:
    parsed = _EXPECT.fullmatch(line)
    if not parsed:
        raise BadScript(line)
    remark = ExpectedMessage(parsed["text"], parsed["how"] == "regex")
    match parsed["kind"]:
        case "fail":
            fields["fail"] = remark
        case "warn" | "info" as kind:
            name = "warnings" if kind == "warn" else "infos"
            fields[name] = [*fields[name], remark]  # type: ignore[misc]
        case "no_warn" | "no_info" as kind:
            fields["silent"] = (*fields["silent"], kind.removeprefix("no_"))  # type: ignore[misc]
        case "ordered":
            fields["ordered"] = True
        case other:
            raise BadScript(f"expect {other}")


def duration_ms(text: str) -> int:
    """Parse a time or step to milliseconds."""
    token = lexer.tokenize(text.removeprefix("-"))[0]
    return round(float(token.value) * 1000) * (-1 if text.startswith("-") else 1)


def _number(text: str) -> float | None:
    try:
        return float(text.replace("Inf", "inf"))
    except ValueError:
        return None


def _series(line: str) -> Loaded:
    starts = re.match(r"(.*?)@st\s", line)
    if starts:
        return Loaded(_labels(starts[1]), [], beyond=STARTS)
    end = _end_of_labels(line)
    labels, values = _labels(line[:end]), line[end:].strip()
    if "{{" in values:
        return Loaded(labels, [], beyond=NATIVE)
    return Loaded(labels, [value for item in values.split() for value in _expand(item)])


def _end_of_labels(line: str) -> int:
    quote, at = "", 0
    opened = False
    while at < len(line):
        here = line[at]
        if quote:
            at += here == "\\" and quote != "`"
            quote = "" if here == quote else quote
        elif here in "\"'`":
            quote = here
        elif here == "{":
            opened = True
        elif here == "}":
            return at + 1
        elif here.isspace() and not opened:
            # A space may stand between the name and its braces.
            rest = line[at:].lstrip()
            if not (rest.startswith("{") and not rest.startswith("{{")):
                return at
        at += 1
    return at


def _labels(text: str) -> Labels:
    """Parse labels in the form of a selector; an empty selector has no labels."""
    if text.replace(" ", "") == "{}":
        return {}
    selector = parse_tree(text)
    if not isinstance(selector, SelectorExpression):
        raise BadScript(text)
    name = {METRIC_NAME: selector.name} if selector.name else {}
    labels = name | {matcher.name: matcher.value for matcher in selector.matchers}
    return {key: value for key, value in labels.items() if value}


def _expand(item: str) -> list[float | None]:
    match = _VALUES.fullmatch(item)
    if not match:
        raise BadScript(f"no value: {item}")
    times = int(match["times"] or 0)
    if match["start"] == "_":
        return [None] * max(times, 1)
    if match["start"] == "stale":
        return [STALE] * (times + 1)
    start = float(match["start"])
    step = float(match["step"] or 0)
    if not match["step"]:
        return [start] * (times + 1)
    values: list[float | None] = []
    here = start
    for _ in range(times + 1):
        values.append(here)
        here += step
    return values
