"""The functions of templates: how Prometheus' rules format numbers, times and texts. Pure.

``FUNCTIONS`` names them. Numbers print as Go prints them, so that a text is the same as in Prometheus. Regular
expressions are RE2's, whose time is linear in the text.
"""

import math
import re
from collections.abc import Callable, Mapping
from html import escape
from urllib.parse import quote_plus

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spm.errors import BadQuery
from spm.query.formats.prometheus import duration_ms

Value = str | float | int | bool | Mapping[str, str]
_UP, _DOWN = ("k", "M", "G", "T", "P", "E", "Z", "Y"), ("m", "u", "n", "p", "f", "a", "z", "y")
_BINARY = ("ki", "Mi", "Gi", "Ti", "Pi", "Ei", "Zi", "Yi")
_VERB = re.compile(r"%([-+# 0]*)(\d{0,3})(?:\.(\d{0,3}))?(.)", re.DOTALL)
_WIDTH_MAX = 200  # of one number or text of printf
_GROUP = re.compile(r"\$(?:\{(\w+)\}|(\w+)|\$)")


def text_of(value: Value) -> str:
    """Write a value as Go's ``Print`` does."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _shortest(value)
    if isinstance(value, Mapping):
        return "map[" + " ".join(f"{name}:{text}" for name, text in sorted(value.items())) + "]"
    return str(value)


def is_true(value: Value) -> bool:
    """Whether a condition of a template holds: anything but zero and what is empty."""
    return bool(value)


def number_of(value: Value) -> float:
    """Read a number from a value; raises ``BadQuery``."""
    if isinstance(value, (bool, Mapping)):
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


def index(container: Value, key: Value) -> str:
    """Return a label by its name; one that is missing is empty."""
    if not isinstance(container, Mapping):
        raise BadQuery('index needs labels: index $labels "name"')
    return container.get(text_of(key), "")


def equal(first: Value, *others: Value) -> bool:
    """Whether the first value equals any of the others."""
    return any(_same(first, other) for other in others)


def _same(left: Value, right: Value) -> bool:
    if isinstance(left, str) != isinstance(right, str):
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
    "stripPort": (lambda text: re.sub(r":\d+$", "", text_of(text)), 1, 1),
    "stripDomain": (lambda text: _without_domain(text_of(text)), 1, 1),
    "match": (match, 2, 2),
    "reReplaceAll": (replace_all, 3, 3),
    "parseDuration": (lambda text: duration_ms(text_of(text)) / 1000, 1, 1),
    "index": (index, 2, 2),
    "len": (lambda value: len(value) if isinstance(value, str | Mapping) else len(text_of(value)), 1, 1),
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


def _without_domain(text: str) -> str:
    host, colon, port = text.partition(":")
    is_address = re.fullmatch(r"[\d.]+(:\d+)?|\[.*", text) is not None
    return text if is_address else host.split(".")[0] + colon + port
