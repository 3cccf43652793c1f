"""Reads what a person types to choose hosts: ``web role=db cpu>80 state=down``. Pure.

A word is a part of the name. ``=`` and ``!=`` compare a label, ``state`` or ``name``; ``<`` and ``>`` compare a
number of the host. All of them must hold. Enter by ``read_filter``; ``HostFilter.admits`` decides about one host.
"""

import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass

NUMBERS = ("cpu", "memory", "disk", "load", "alerts")
_STATES = {"down": "gone"}  # as people say it → as it is stored
_BOUND = re.compile(rf"({'|'.join(NUMBERS)})(<=|>=|<|>)(-?\d+(?:\.\d+)?)%?")
_LABEL = re.compile(r"([a-zA-Z_]\w*)(!=|=)(.*)")
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
    for word in text.split():
        if bound := _BOUND.fullmatch(word.casefold()):
            bounds.append((bound[1], bound[2], float(bound[3])))
        elif label := _LABEL.fullmatch(word):
            name, sign, value = label[1], label[2], label[3].strip('"')
            labels.append((name, sign, _STATES.get(value, value) if name == "state" else value))
        else:
            parts.append(word.casefold())
    return HostFilter(" ".join(text.split()), tuple(parts), tuple(labels), tuple(bounds))
