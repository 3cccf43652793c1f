"""The types of collectors: ``Collector``, a callable that returns points, and ``ServiceKind``, its configuration.

Options are checked when the configuration is read (``ServiceKind.read``), so that a typing error stops the start
instead of leaving a gap in a chart. ``snake_case`` and ``numeric_fields`` turn a service's own names into parts of
metric names.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ingest.agent.collect.fetch import Access
from ingest.agent.lines import Point
from spm import limits
from spm.errors import Refused

Collector = Callable[[], Sequence[Point]]
Options = Mapping[str, Any]
_COMMON: dict[str, type] = {"name": str, "tags": dict}
_ACCESS: dict[str, type] = {"user": str, "password": str, "password_file": str, "ca_file": str, "timeout_s": float}
_SECONDS_MAX = {"every_s": 86_400.0}  # a day; others are time-outs
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_UNFIT = re.compile(r"[^A-Za-z0-9_]+")


@dataclass(frozen=True, slots=True)
class ServiceKind:
    """One kind of service. ``options``: name → type (str, bool, float, list); ``needed``: the required ones."""

    name: str
    make: Callable[[Options], Collector]
    options: Mapping[str, type] = field(default_factory=dict)
    needed: tuple[str, ...] = ()
    place: str = "url"  # the option with the address, which distinguishes two services of a kind
    check: Callable[[Options], None] = lambda options: None

    def read(self, table: Any) -> dict[str, Any]:
        """Returns the options of a table in the configuration; ``Refused``: one is unknown, missing or wrong."""
        known = {**_COMMON, **_ACCESS, **self.options}
        if not isinstance(table, dict):
            raise Refused(f"[[{self.name}]] is no table", got=repr(table)[:60])
        for option, value in table.items():
            if option not in known:
                raise _unknown(self.name, option, known)
            table[option] = _check_option(self.name, option, value, known[option])
        if missing := [option for option in self.needed if not table.get(option)]:
            raise Refused(f"[[{self.name}]] lacks {', '.join(missing)}", wanted=", ".join(self.needed))
        if table.get("password_file"):
            table["password"] = _secret(self.name, table["password_file"])
        self.check(table)
        return table

    def label(self, options: Options) -> str:
        """Returns the name of the collector: its kind and its name or address."""
        return f"{self.name}:{options.get('name') or options.get(self.place) or ''}".rstrip(":")


def access_of(options: Options) -> Access:
    """Returns the access data in these options."""
    timeout_s = float(options.get("timeout_s", limits.AGENT_FETCH_S))
    return Access(options.get("user", ""), options.get("password", ""), options.get("ca_file", ""), timeout_s)


def snake_case(text: str) -> str:
    """Converts ``HeapMemoryUsage`` to ``heap_memory_usage``; characters not allowed in metric names become ``_``."""
    return _UNFIT.sub("_", _CAMEL.sub("_", text)).strip("_").lower()


def numeric_fields(values: Mapping[str, Any], *, under: str = "") -> dict[str, float]:
    """Returns the numbers in a JSON object: nested names are joined by ``_``, booleans are 1 and 0, texts left out."""
    fields: dict[str, float] = {}
    for key, value in values.items():
        name = f"{under}_{snake_case(key)}" if under else snake_case(key)
        if isinstance(value, bool):
            fields[name] = int(value)
        elif isinstance(value, int | float):
            fields[name] = value
        elif isinstance(value, dict) and name.count("_") < 24:
            fields |= numeric_fields(value, under=name)
    return fields


def _unknown(kind: str, option: str, known: Mapping[str, type]) -> Refused:
    near = get_close_matches(option, known, 1)
    remedy = f"Did you mean {near[0]}?" if near else ""
    return Refused(f"[[{kind}]] has an unknown option", got=option, wanted=", ".join(sorted(known)), remedy=remedy)


def _check_option(kind: str, option: str, value: Any, expected: type) -> Any:
    if expected is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    most = _SECONDS_MAX.get(option, limits.AGENT_COMMAND_S_MAX)
    bad = isinstance(value, float) and not 0 < value <= most
    if bad or not isinstance(value, expected):
        types = {
            str: "a text",
            bool: "true or false",
            list: "a list of texts",
            dict: "a table of texts",
            float: f"a number above 0, up to {most:g}",
        }
        raise Refused(f"[[{kind}]] {option} is wrong", got=repr(value)[:60], wanted=types[expected])
    inner = value if isinstance(value, list) else value.values() if isinstance(value, dict) else ()
    if not all(isinstance(each, str) for each in inner):
        raise Refused(f"[[{kind}]] {option} holds a value that is no text", got=repr(value)[:60])
    return value


def _secret(kind: str, path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"[[{kind}]] password_file cannot be read", got=f"{path}: {error}") from None
