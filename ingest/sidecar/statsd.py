"""StatsD with DogStatsD's tags: ``name:1|c|@0.1|#env:prod,host:a``. Pure.

What comes between two looks is added up (``points``), and sent as what Prometheus calls it:

    c          a counter that grows from the start of this program on; a sample rate counts what was left out
    g          the last value; ``+1`` and ``-1`` change it
    ms h d     name_count and name_sum, which grow; of this look name_min, name_max, and name with a label quantile
    s          how many different members this look has seen

Tags are ``|#name:value,name:value``, and ``name,tag=value`` or ``name;tag=value`` before the colon. Several values
(``name:1:2:3|ms``) are several. Events and service checks of DogStatsD are no metrics: they are counted as unreadable.
What is not heard of for ``STATSD_IDLE_S`` is forgotten. Enter by ``Statsd``.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ingest.agent.lines import Point
from ingest.sidecar.intake import Unreadable
from spm import limits

KINDS = ("c", "m", "g", "ms", "h", "d", "s")
QUANTILES = (0.5, 0.9, 0.99)
_TIMES = ("ms", "h", "d")
Key = tuple[str, str, tuple[tuple[str, str], ...]]  # kind, name, tags


@dataclass(frozen=True, slots=True)
class Reading:
    """What one line says: its kind, its series, its values as written, how many events each stands for."""

    kind: str
    name: str
    tags: tuple[tuple[str, str], ...]
    values: tuple[str, ...]
    weight: float


@dataclass(slots=True)
class _Tally:
    """One series since it was first heard of (total, count, level) and since the last look (the rest)."""

    heard_ms: int = 0
    total: float = 0.0
    count: float = 0.0
    level: float = 0.0
    least: float = math.inf
    most: float = -math.inf
    values: list[float] = field(default_factory=list)
    members: set[str] = field(default_factory=set)
    fresh: bool = False


class Statsd:
    """All series of this program; ``take`` and ``points`` as ``Speech`` wants them."""

    def __init__(self) -> None:
        self._tallies: dict[Key, _Tally] = {}
        self._kept = 0  # values and members since the last look, of all series

    def take(self, line: str, now_ms: int) -> bool:
        """See ``Speech``."""
        reading = read(line)
        key = (reading.kind, reading.name, reading.tags)
        numbers = [] if reading.kind == "s" else [_number(value) for value in reading.values]
        tally = self._tallies.get(key)
        if tally is None:
            if len(self._tallies) >= limits.STATSD_SERIES_MAX:
                return False
            tally = self._tallies[key] = _Tally()
        tally.heard_ms, tally.fresh = now_ms, True
        if reading.kind == "s":
            self._members(tally, reading.values)
        elif reading.kind == "g":
            _level(tally, reading.values, numbers)
        else:
            self._add(tally, numbers, reading)
        return True

    def points(self, now_ms: int) -> Sequence[Point]:
        """See ``Speech``."""
        idle_ms = limits.STATSD_IDLE_S * 1_000
        gone = [key for key, tally in self._tallies.items() if now_ms - tally.heard_ms > idle_ms]
        for key in gone:
            del self._tallies[key]
        found = [point for key, tally in self._tallies.items() for point in _points(key, tally)]
        for tally in self._tallies.values():
            tally.least, tally.most, tally.values, tally.fresh = math.inf, -math.inf, [], False
            tally.members = set()
        self._kept = 0
        return found

    def _add(self, tally: _Tally, numbers: Sequence[float], reading: Reading) -> None:
        for number in numbers:
            tally.total += number * reading.weight
            tally.count += reading.weight
            tally.least, tally.most = min(tally.least, number), max(tally.most, number)
            if reading.kind in _TIMES and self._kept < limits.STATSD_VALUES_MAX:
                tally.values.append(number)
                self._kept += 1

    def _members(self, tally: _Tally, values: Sequence[str]) -> None:
        for value in values:
            if value not in tally.members and self._kept < limits.STATSD_VALUES_MAX:
                tally.members.add(value)
                self._kept += 1


def read(line: str) -> Reading:
    """What a line says; raises ``Unreadable``."""
    if line.startswith(("_e{", "_sc|")):
        raise Unreadable("an event or a service check is no metric")
    head, bar, rest = line.partition("|")
    name, colon, values = head.partition(":")
    if not (bar and colon and name and values):
        raise Unreadable("not name:value|kind")
    kind, *sections = rest.split("|")
    if kind not in KINDS:
        raise Unreadable("the kind is none of c, g, ms, h, d and s")
    name, tags = _named(name)
    weight = 1.0
    for section in sections:
        if section.startswith("@"):
            weight = 1 / _rate(section[1:])
        elif section.startswith("#"):
            tags |= _tags(section[1:].split(","), ":")
    several = tuple(values.split(":")) if kind != "s" else (values,)
    return Reading("c" if kind == "m" else kind, name, tuple(sorted(tags.items())), several, weight)


def _named(text: str) -> tuple[str, dict[str, str]]:
    """The name and the tags that stand with it, after a comma or a semicolon."""
    for mark in (";", ","):
        name, found, rest = text.partition(mark)
        if found:
            if not name:
                raise Unreadable("the name is empty")
            return name, _tags(rest.split(mark), "=")
    return text, {}


def _tags(pairs: Sequence[str], mark: str) -> dict[str, str]:
    """Tags by name; one without a value is true, as DogStatsD has them."""
    found = (pair.partition(mark) for pair in pairs if pair)
    tags = {name: value or "true" for name, _, value in found}
    if "" in tags:
        raise Unreadable("a tag has no name")
    return tags


def _rate(text: str) -> float:
    rate = _number(text)
    if not 0 < rate <= 1:
        raise Unreadable("the sample rate is not above 0 and at most 1")
    return rate


def _number(text: str) -> float:
    try:
        number = float(text) if "_" not in text else math.nan
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise Unreadable("a value is not a number")
    return number


def _level(tally: _Tally, texts: Sequence[str], numbers: Sequence[float]) -> None:
    for text, number in zip(texts, numbers, strict=True):
        tally.level = tally.level + number if text[0] in "+-" else number


def _points(key: Key, tally: _Tally) -> Iterator[Point]:
    """What to send of one series."""
    kind, name, pairs = key
    tags = dict(pairs)
    if kind == "c":
        yield Point(name, {"value": tally.total}, tags)
    elif kind == "g":
        yield Point(name, {"value": tally.level}, tags)
    elif kind == "s":
        if tally.fresh:
            yield Point(name, {"value": float(len(tally.members))}, tags)
    else:
        yield Point(name, {"count": tally.count, "sum": tally.total}, tags)
        if tally.fresh:
            yield Point(name, {"min": tally.least, "max": tally.most}, tags)
            yield from _quantiles(name, tally.values, tags)


def _quantiles(name: str, values: list[float], tags: dict[str, str]) -> Iterator[Point]:
    """Of the values of this look, by nearest rank."""
    values.sort()
    for quantile in QUANTILES if values else ():
        rank = max(0, math.ceil(quantile * len(values)) - 1)
        yield Point(name, {"value": values[rank]}, {**tags, "quantile": str(quantile)})
