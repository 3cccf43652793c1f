"""Reads what a person types to choose hosts: ``web role=db cpu>80 state=down rack="row 7"``. Pure.

A word is a part of the name. ``=`` and ``!=`` compare a label, ``state`` or ``name``; ``<`` and ``>`` compare a
number of the host. All of them must hold. Double quotes keep spaces together, and a backslash before a quote or a
backslash means the sign itself. Enter by ``read_filter``; ``HostFilter.admits`` decides about one host, and
``quote_value`` writes a value for a filter.
"""

import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass

NUMBERS = ("cpu", "memory", "disk", "load", "alerts")
_STATES = {"down": "gone"}  # as people say it → as it is stored
_BOUND = re.compile(rf"({'|'.join(NUMBERS)})(<=|>=|<|>)(-?\d+(?:\.\d+)?)%?")
_LABEL = re.compile(r"([a-zA-Z_]\w*)(!=|=)(.*)", re.DOTALL)
_WORD = re.compile(r'(?:"(?:\\.|[^"\\])*"?|[^\s"])+', re.DOTALL)  # a quote without an end reaches to the text's end
_QUOTED = re.compile(r'"((?:\\.|[^"\\])*)"?', re.DOTALL)
_PLAIN = re.compile(r'[^\s"\\]+')
_COMPARE = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


@dataclass(frozen=True, slots=True)
class HostFilter:
    """What a filter asks for: parts of the name, labels with ``=`` or ``!=``, and bounds of numbers."""

    text: str = ""
    parts: tuple[str, ...] = ()
    labels: tuple[tuple[str, str, str], ...] = ()
    bounds: tuple[tuple[str, str, float], ...] = ()

    def admits(self, name: str, labels: Mapping[str, str], numbers: Mapping[str, float | None]) -> bool:
        """Whether a host is chosen; a number that nobody knows lies within no bound."""
        folded = name.casefold()
        return (
            all(part in folded for part in self.parts)
            and all((labels.get(label, "") == value) is (sign == "=") for label, sign, value in self.labels)
            and all(
                (value := numbers.get(field)) is not None and _COMPARE[sign](value, bound)
                for field, sign, bound in self.bounds
            )
        )


def read_filter(text: str) -> HostFilter:
    """Read a filter; what is no comparison is a part of the name."""
    parts, labels, bounds = [], [], []
    words = _WORD.findall(text)
    for word in words:
        if bound := _BOUND.fullmatch(word.casefold()):
            bounds.append((bound[1], bound[2], float(bound[3])))
        elif label := _LABEL.fullmatch(word):
            name, sign, value = label[1], label[2], _unquote(label[3])
            labels.append((name, sign, _STATES.get(value, value) if name == "state" else value))
        else:
            parts.append(_unquote(word).casefold())
    return HostFilter(" ".join(words), tuple(parts), tuple(labels), tuple(bounds))


def quote_value(value: str) -> str:
    """Write a value so that a filter reads it as one: in quotes if it has spaces or quotes, or is empty."""
    if _PLAIN.fullmatch(value):
        return value
    return '"{}"'.format(re.sub(r'(["\\])', r"\\\1", value))


def _unquote(word: str) -> str:
    return _QUOTED.sub(lambda match: re.sub(r"\\(.)", r"\1", match[1], flags=re.DOTALL), word)
