"""The functions of templates: how Prometheus' rules format numbers, times and texts. Pure.

``FUNCTIONS`` names them, without ``query``, which needs the alert's app. Numbers print as Go prints them, so that a
text is the same as in Prometheus. Regular expressions are RE2's, whose time is linear in the text.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TypeAlias
from urllib.parse import quote_plus

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from alerts.templating import limits
from spm.errors import BadQuery
from spm.query.formats.prometheus import duration_ms


@dataclass(frozen=True, slots=True)
class Sample:
    """One series of the answer to a query, and its value."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class AlertFacts:
    """What a template sees of an alert. Without ``query`` a template that queries fails, and its text says so."""

    labels: Mapping[str, str]
    value: float
    external_labels: Mapping[str, str] = field(default_factory=dict)
    external_url: str = ""
    query: "Query | None" = None


Scalar = str | float | int | bool
Value: TypeAlias = "Scalar | Mapping[str, Value] | Mapping[str, str] | Sample | AlertFacts | Sequence[Value] | None"
Query = Callable[[str], Sequence[Sample]]
_RAW_VALUE = "__value__"  # the label in which a series carries a text
_UP, _DOWN = ("k", "M", "G", "T", "P", "E", "Z", "Y"), ("m", "u", "n", "p", "f", "a", "z", "y")
_BINARY = ("ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi")
_VERB = re.compile(r"%([-+# 0]*)(\d{0,3})(?:\.(\d{0,3}))?(.)", re.DOTALL)
_WIDTH_MAX = 200  # of one number or text of printf
_HOST_PORT = re.compile(r"\[([^\[\]]*)\]:[^:]*|([^:\[\]]*):[^:]*")
_GROUP = re.compile(r"\$(?:\{(\w+)\}|(\w+)|\$)")


def text_of(value: Value) -> str:
    """Write a value as Go's ``Print`` does."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _shortest(value)
    if isinstance(value, Mapping):
        return "map[" + " ".join(f"{name}:{text_of(each)}" for name, each in sorted(value.items())) + "]"
    if isinstance(value, Sample):
        return f"{{{text_of(value.labels)} {_shortest(value.value)}}}"
    if value is None:
        return "<no value>"
    if isinstance(value, AlertFacts):
        raise BadQuery("the dot alone means something inside {{ with … }}, {{ range … }} and definitions only")
    return value if isinstance(value, str) else str(value) if isinstance(value, int) else _list_text(value)


def _list_text(values: Sequence[Value]) -> str:
    return "[" + " ".join(map(text_of, values)) + "]"


def items_of(value: Value) -> list[tuple[Value, Value]]:
    """Return what a loop goes through, with its keys: a list, labels by name, or the numbers below a whole number."""
    if isinstance(value, Mapping):
        return sorted(value.items())
    if isinstance(value, int) and not isinstance(value, bool):
        return [(number, number) for number in range(min(value, limits.TEMPLATE_STEPS_MAX + 1))]
    if isinstance(value, (str, float, bool, Sample, AlertFacts)):
        raise BadQuery(f"a loop cannot go through {text_of(value)[:40]!r}")
    return list(enumerate(value or ()))


def is_true(value: Value) -> bool:
    """Whether a condition of a template holds: anything but zero and what is empty."""
    return isinstance(value, (Sample, AlertFacts)) or bool(value)


def number_of(value: Value) -> float:
    """Read a number from a value; raises ``BadQuery``."""
    if not isinstance(value, (str, float, int)) or isinstance(value, bool):
        raise BadQuery(f"{text_of(value)!r} is not a number")
    try:
        return float(value)
    except ValueError as error:
        raise BadQuery(f"{value!r} is not a number") from error


def _shortest(value: float) -> str:
    if not math.isfinite(value):
        return _not_finite(value)
    if value == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    digits, _, power = np.format_float_scientific(value, unique=True, trim="-").partition("e")
    exponent = int(power)
    if -4 <= exponent < 6:
        return np.format_float_positional(value, unique=True, trim="-")
    return f"{digits}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


def _not_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def _four_digits(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else _not_finite(value)


def humanize(given: Value) -> str:
    """Write a number with a metric prefix: 1234567 is 1.235M."""
    value = number_of(given)
    if value == 0 or not math.isfinite(value):
        return _four_digits(value)
    return _scaled(value, _UP, 1000) if abs(value) >= 1 else _enlarged(value)


def humanize_1024(given: Value) -> str:
    """Write a number with a binary prefix: 2048 is 2ki."""
    value = number_of(given)
    return _four_digits(value) if abs(value) <= 1 or not math.isfinite(value) else _scaled(value, _BINARY, 1024)


def humanize_duration(given: Value) -> str:
    """Write seconds as days, hours, minutes and seconds."""
    value = number_of(given)
    if not math.isfinite(value):
        return _not_finite(value)
    if 0 < abs(value) < 1:
        return _enlarged(value) + "s"
    sign, whole = "-" if value < 0 else "", int(abs(value))
    days, hours, minutes, seconds = whole // 86_400, whole // 3_600 % 24, whole // 60 % 60, whole % 60
    if days:
        return f"{sign}{days}d {hours}h {minutes}m {seconds}s"
    if hours:
        return f"{sign}{hours}h {minutes}m {seconds}s"
    return f"{sign}{minutes}m {seconds}s" if minutes else f"{sign}{_four_digits(abs(value))}s"


def humanize_percentage(given: Value) -> str:
    """Write a ratio as a percentage."""
    value = number_of(given) * 100
    return f"{_four_digits(value)}%"


def humanize_timestamp(given: Value) -> str:
    """Write seconds since 1970 as a time in UTC."""
    value = number_of(given)
    if not math.isfinite(value):
        return _not_finite(value)
    if abs(value) >= 2**33 * 30:
        raise BadQuery(f"{_shortest(value)} is not a time that can be written")
    moment = str(np.datetime64(round(value * 1e9) if abs(value) < 9e9 else round(value) * 10**9, "ns"))
    day, _, clock = moment.partition("T")
    return f"{day} {clock.rstrip('0').rstrip('.') if '.' in clock else clock} +0000 UTC"


def _scaled(value: float, prefixes: tuple[str, ...], base: int) -> str:
    prefix = ""
    for each in prefixes:
        if abs(value) < base:
            break
        prefix, value = each, value / base
    return _four_digits(value) + prefix


def _enlarged(value: float) -> str:
    prefix = ""
    for each in _DOWN:
        if abs(value) >= 1:
            break
        prefix, value = each, value * 1000
    return _four_digits(value) + prefix


def printf(template: Value, *values: Value) -> str:
    """Format values as Go's ``Sprintf`` does."""
    rest = list(values)

    def write(match: re.Match[str]) -> str:
        flags, width, precision, verb = match.groups()
        if verb == "%":
            return "%"
        if not rest:
            return f"%!{verb}(MISSING)"
        return _formatted(rest.pop(0), flags, min(int(width or 0), _WIDTH_MAX), precision, verb)

    text = _VERB.sub(write, text_of(template))
    return text + (f"%!(EXTRA {', '.join(map(text_of, rest))})" if rest else "")


def _formatted(value: Value, flags: str, width: int, precision: str | None, verb: str) -> str:
    digits = None if precision is None else int(precision or 0)
    if verb in "eEfFgG":
        number = number_of(value)
        if not math.isfinite(number):
            text = _not_finite(number)
        else:
            is_short = verb in "gG" and digits is None
            text = _shortest(number) if is_short else f"{number:.{6 if digits is None else digits}{verb}}"
        text = "+" + text if "+" in flags and not text.startswith(("-", "+")) else text
    elif verb in "dxXo":
        text = format(int(number_of(value)), verb)
    elif verb in "svq":
        text = text_of(value) if digits is None else text_of(value)[:digits]
        text = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"' if verb == "q" else text
    elif verb == "t":
        text = text_of(value)
    else:
        raise BadQuery(f"printf does not know %{verb}; it knows d e f g o q s t v x")
    if "-" in flags:
        return text.ljust(width)
    fill = "0" if "0" in flags and verb not in "svqt" else " "
    return text.zfill(width) if fill == "0" else text.rjust(width)


def match(pattern: Value, text: Value) -> bool:
    """Whether a regular expression matches a part of a text."""
    return bool(_with_pattern(lambda: pc.match_substring_regex(pa.array([text_of(text)]), text_of(pattern))[0].as_py()))


def replace_all(pattern: Value, replacement: Value, text: Value) -> str:
    """Replace all matches of a regular expression; ``$1`` in the replacement is its first group."""
    escaped = text_of(replacement).replace("\\", "\\\\")
    with_groups = _GROUP.sub(lambda each: "$" if each[0] == "$$" else f"\\{each[1] or each[2]}", escaped)
    column = pa.array([text_of(text)])
    return str(_with_pattern(lambda: pc.replace_substring_regex(column, text_of(pattern), with_groups)[0].as_py()))


def _with_pattern(act: Callable[[], object]) -> object:
    try:
        return act()
    except pa.ArrowInvalid as error:
        raise BadQuery(f"not a regular expression: {str(error)[:200]}") from error


def index(container: Value, key: Value) -> Value:
    """Return a label by its name, one that is missing is empty; or an element of a list by its place."""
    if isinstance(container, Mapping):
        return container.get(text_of(key), "")
    if isinstance(container, (str, float, int, Sample, AlertFacts)) or container is None:
        raise BadQuery('index needs labels or a list: index $labels "name"')
    place = int(number_of(key))
    if not 0 <= place < len(container):
        raise BadQuery(f"index {place} is outside of a list with {len(container)} elements")
    return container[place]


def arguments(*values: Value) -> Value:
    """Return values as ``.arg0``, ``.arg1`` and so on, for a definition."""
    return {f"arg{number}": value for number, value in enumerate(values)}


def first(samples: Value) -> Value:
    """Return the first series of an answer."""
    return index(_samples(samples), 0)


def _samples(value: Value) -> list[Value]:
    if isinstance(value, (str, float, int, Mapping, Sample, AlertFacts)) or value is None:
        raise BadQuery(f"{text_of(value)[:40]!r} is not the answer to a query")
    return list(value)


def _sample(value: Value) -> Sample:
    if not isinstance(value, Sample):
        raise BadQuery(f"{text_of(value)[:40]!r} is not a series of an answer")
    return value


def sort_by_label(name: Value, samples: Value) -> Value:
    """Return the series of an answer in the order of one label."""
    label = text_of(name)
    series = [_sample(each) for each in _samples(samples)]
    return sorted(series, key=lambda each: each.labels.get(label, ""))


def _length(value: Value) -> int:
    if isinstance(value, (float, int, Sample, AlertFacts)) or value is None:
        raise BadQuery(f"len of {text_of(value)[:40]!r}: it has no length")
    return len(value.encode()) if isinstance(value, str) else len(value)


def _graph_link(tab: int) -> Callable[[Value], Value]:
    return lambda expr: f"/graph?g0.expr={quote_plus(text_of(expr))}&g0.tab={tab}"


def equal(first: Value, *others: Value) -> bool:
    """Whether the first value equals any of the others."""
    return any(_same(first, other) for other in others)


def _same(left: Value, right: Value) -> bool:
    if isinstance(left, str) != isinstance(right, str) or not isinstance(left, (str, float, int)):
        raise BadQuery("eq and ne compare two texts or two numbers")
    return left == right


def _ordered(compare: Callable[[float, float], bool]) -> Callable[..., bool]:
    def apply(left: Value, right: Value) -> bool:
        return compare(number_of(left), number_of(right))

    return apply


def _conjunction(*values: Value) -> Value:
    return next((each for each in values if not is_true(each)), values[-1])


def _disjunction(*values: Value) -> Value:
    return next((each for each in values if is_true(each)), values[-1])


FUNCTIONS: Mapping[str, tuple[Callable[..., Value], int, int]] = {  # name → function, least and most arguments
    "humanize": (humanize, 1, 1),
    "humanize1024": (humanize_1024, 1, 1),
    "humanizeDuration": (humanize_duration, 1, 1),
    "humanizePercentage": (humanize_percentage, 1, 1),
    "humanizeTimestamp": (humanize_timestamp, 1, 1),
    "printf": (printf, 1, 20),
    "print": (lambda *values: "".join(map(text_of, values)), 0, 20),
    "title": (lambda text: re.sub(r"(?<![\w'])\w", lambda first: first[0].upper(), text_of(text)), 1, 1),
    "toUpper": (lambda text: text_of(text).upper(), 1, 1),
    "toLower": (lambda text: text_of(text).lower(), 1, 1),
    "stripPort": (lambda text: _without_port(text_of(text)), 1, 1),
    "stripDomain": (lambda text: _without_domain(text_of(text)), 1, 1),
    "match": (match, 2, 2),
    "reReplaceAll": (replace_all, 3, 3),
    "parseDuration": (lambda text: duration_ms(text_of(text)) / 1000, 1, 1),
    "index": (index, 2, 2),
    "len": (_length, 1, 1),
    "args": (arguments, 0, 20),
    "first": (first, 1, 1),
    "label": (lambda name, sample: _sample(sample).labels.get(text_of(name), ""), 2, 2),
    "value": (lambda sample: _sample(sample).value, 1, 1),
    "strvalue": (lambda sample: _sample(sample).labels.get(_RAW_VALUE, ""), 1, 1),
    "sortByLabel": (sort_by_label, 2, 2),
    "println": (lambda *values: " ".join(map(text_of, values)) + "\n", 0, 20),
    "tableLink": (_graph_link(1), 1, 1),
    "graphLink": (_graph_link(0), 1, 1),
    "pathPrefix": (lambda: "", 0, 0),
    "externalURL": (lambda: "", 0, 0),
    "tmpl": (lambda _name, _dot: "", 2, 2),  # for pages of Prometheus' console, which are not here
    "html": (lambda text: escape(text_of(text)), 1, 1),
    "safeHtml": (text_of, 1, 1),
    "urlquery": (lambda text: quote_plus(text_of(text)), 1, 1),
    "eq": (equal, 2, 20),
    "ne": (lambda left, right: not _same(left, right), 2, 2),
    "lt": (_ordered(lambda left, right: left < right), 2, 2),
    "le": (_ordered(lambda left, right: left <= right), 2, 2),
    "gt": (_ordered(lambda left, right: left > right), 2, 2),
    "ge": (_ordered(lambda left, right: left >= right), 2, 2),
    "not": (lambda value: not is_true(value), 1, 1),
    "and": (_conjunction, 1, 20),
    "or": (_disjunction, 1, 20),
}


def _without_port(text: str) -> str:
    """Return the host before a port, an IPv6 address without its brackets; a text of any other form stays."""
    address = _HOST_PORT.fullmatch(text)
    return text if address is None else address[1] if address[1] is not None else address[2]


def _without_domain(text: str) -> str:
    host, colon, port = text.partition(":")
    is_address = re.fullmatch(r"[\d.]+(:\d+)?|\[.*", text) is not None
    return text if is_address else host.split(".")[0] + colon + port
