"""Query types of the Time Series Benchmark Suite's devops set, as PromQL, with every point checked against numpy.

A type is asked at random places of the data, over one keep-alive connection each, ten queries of the product and ten of
its peer in turn: one by one each would find the processor's caches full of the other's data. What both keep in memory
is warm; reading JSON is not in the time. Points of the product must be those that the raw input gives;
how many of the peer's differ is told (it has rules of its own for what lies before a window). ``aligned`` asks at whole
hours.
"""

import argparse
import http.client
import json
import time
import urllib.parse
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tests.bench import report
from tests.servers.product import Served
from tests.support.fleet import FIELDS, Fleet

HOUR_S, LOOKBACK_S = 3_600, 300
WARM, BLOCK = 20, 10  # queries
Points = dict[tuple[str, str], dict[float, float]]


@dataclass(frozen=True, slots=True)
class Ask:
    """One query: of so many fields, of these hosts (``None``: all), at these times (s)."""

    fields: int
    hosts: tuple[int, ...] | None
    how: str  # max, mean, above or last
    range_s: int
    start: int
    end: int
    step: int

    @property
    def expression(self) -> str:
        """As PromQL."""
        names = [f"cpu_{name}" for name in FIELDS[: self.fields]]
        parts = (
            [] if self.fields == 1 else [f'__name__=~"{"cpu_.*" if self.fields == len(FIELDS) else "|".join(names)}"']
        )
        if self.hosts is not None:
            parts.append(f'hostname=~"{"|".join(f"host_{h}" for h in self.hosts)}"')
        selector = (names[0] if self.fields == 1 else "") + (f"{{{','.join(parts)}}}" if parts else "")
        return {
            "max": f"max(max_over_time({selector}[{self.range_s}s])) by (__name__)",
            "mean": f"avg(avg_over_time({selector}[{self.range_s}s])) by (__name__, hostname)",
            "above": f"{selector} > 90",
            "last": f"last_over_time({selector}[{self.range_s}s])",
        }[self.how]

    def expected(self, fleet: Fleet) -> Points:
        """What the raw input gives."""
        grid, hosts = fleet.ts[:, 0], list(self.hosts if self.hosts is not None else range(fleet.hosts))
        points: Points = {}
        for t in range(self.start, self.end + 1, self.step):
            low, high = np.searchsorted(grid, [(t - self.range_s) * 1000, t * 1000], side="right")
            if high == low:
                continue
            window = fleet.values[low:high, :, : self.fields][:, hosts]
            if self.how == "max":
                values = {(f, ""): v for f, v in enumerate(window.max(axis=(0, 1)).tolist())}
            else:
                table = window.mean(axis=0) if self.how == "mean" else window[-1]
                values = {
                    (f, f"host_{h}"): v for h, row in zip(hosts, table.tolist(), strict=True) for f, v in enumerate(row)
                }
            for (column, host), value in values.items():
                if self.how != "above" or value > 90:
                    points.setdefault((f"cpu_{FIELDS[column]}", host), {})[float(t)] = value
        return points


Type = Callable[[np.random.Generator, int, int, float], Ask]  # random, hosts, seconds of data, scale of time


def types() -> dict[str, Type]:
    """The types by name. Where there is less than a day of data all times shrink with it."""
    by_name: dict[str, Type] = {}
    for fields, hosts, hours in ((1, 1, 1), (1, 1, 12), (1, 8, 1), (5, 1, 1), (5, 8, 1)):
        by_name[f"single-groupby-{fields}-{hosts}-{hours}"] = _type(fields, hosts, "max", hours, 60)
    for name, fields in (("1", 1), ("5", 5), ("all", 10)):
        by_name[f"double-groupby-{name}"] = _type(fields, None, "mean", 12, HOUR_S)
    for hosts in (1, 8):
        by_name[f"cpu-max-all-{hosts}"] = _type(10, hosts, "max", 8, HOUR_S)
    by_name |= {"high-cpu-1": _type(1, 1, "above", 12, 10), "high-cpu-all": _type(1, None, "above", 12, 10)}
    return {**by_name, "lastpoint": _lastpoint}


def _type(fields: int, hosts: int | None, how: str, hours: int, step: int) -> Type:
    def draw(random: np.random.Generator, of: int, seconds: int, scale: float) -> Ask:
        span, width = int(hours * HOUR_S * scale), int(step * scale) if step == HOUR_S else step
        begin = int(random.integers(0, seconds - span + 1))
        chosen = None if hosts is None else tuple(sorted(random.choice(of, hosts, replace=False).tolist()))
        return Ask(fields, chosen, how, LOOKBACK_S if how == "above" else width, begin + width, begin + span, width)

    return draw


def _lastpoint(random: np.random.Generator, of: int, seconds: int, scale: float) -> Ask:
    return Ask(10, None, "last", LOOKBACK_S, seconds, seconds, 1)


def call_of(start_ms: int, ask: Ask) -> tuple[str, dict[str, object]]:
    """The call and its parameters."""
    at = start_ms // 1000
    if ask.how == "last":
        return "query", {"query": ask.expression, "time": at + ask.end}
    return "query_range", {"query": ask.expression, "start": at + ask.start, "end": at + ask.end, "step": ask.step}


def points_of(data: dict[str, object], start_ms: int) -> Points:
    """An answer's points, times counted from the start of the data."""
    points: Points = {}
    for series in data["result"]:  # type: ignore[attr-defined]
        key = series["metric"].get("__name__", ""), series["metric"].get("hostname", "")
        values = series.get("values") or [series["value"]]
        points[key] = {float(t) - start_ms / 1000: float(v) for t, v in values}
    return points


def differing(answered: Points, expected: Points) -> int:
    """How many points are not those of the raw input."""
    wrong = 0
    for key in answered.keys() | expected.keys():
        ours, theirs = answered.get(key, {}), expected.get(key, {})
        for t in ours.keys() | theirs.keys():
            here, there = ours.get(t), theirs.get(t)
            wrong += here is None or there is None or abs(here - there) > 1e-12 * abs(there)
    return wrong


def measure(
    name: str, fleet: Fleet, start_ms: int, servers: list[tuple[str, Served]], options: argparse.Namespace
) -> None:
    """Every type, on both, and again at whole hours where hours are what it asks for."""
    seconds = fleet.steps * 10
    scale = min(1.0, seconds / 43_200) if seconds < 43_200 else 1.0
    for kind, draw in types().items():
        if options.only and options.only not in kind:
            continue
        _compared(f"{name} {kind}", draw, fleet, start_ms, seconds, scale, servers, options.times)
        if scale == 1 and kind.startswith(("double", "cpu-max")):
            _compared(f"{name} {kind} aligned", _aligned(draw), fleet, start_ms, seconds, scale, servers, options.times)


def _aligned(draw: Type) -> Type:
    def at_hours(random: np.random.Generator, of: int, seconds: int, scale: float) -> Ask:
        ask = draw(random, of, seconds, scale)
        shift = ask.start % HOUR_S
        return Ask(ask.fields, ask.hosts, ask.how, ask.range_s, ask.start - shift, ask.end - shift, ask.step)

    return at_hours


def _compared(
    name: str,
    draw: Type,
    fleet: Fleet,
    start_ms: int,
    seconds: int,
    scale: float,
    servers: list[tuple[str, Served]],
    times: int,
) -> None:
    random = np.random.default_rng(7)
    asks = [draw(random, fleet.hosts, seconds, scale) for _ in range(WARM + times)]
    runs = [_Run(who, served) for who, served in servers]
    for number in range(0, len(asks), BLOCK):
        for run in runs:
            run.ask(start_ms, asks[number : number + BLOCK], counts=number >= WARM)
    medians = [run.report(name, fleet, start_ms, asks) for run in runs]
    if len(medians) > 1:
        (ours, our_cpu), (theirs, their_cpu) = medians
        report.line(f"{name} times as fast", wall=theirs / ours, cpu=their_cpu / max(our_cpu, 1e-9))


@dataclass(slots=True)
class _Run:
    """One server's part: what its queries took, and what it answered."""

    who: str
    served: Served
    connection: http.client.HTTPConnection = field(init=False)
    took: list[float] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    busy_ms: float = 0.0

    def __post_init__(self) -> None:
        self.connection = self.served.connection()

    def ask(self, start_ms: int, asks: list[Ask], *, counts: bool) -> None:
        """Some queries; their bodies are read, not looked into. ``counts``: whether what they take is noted."""
        before_ms, took = self.served.busy_ms(), []
        for ask in asks:
            call, parameters = call_of(start_ms, ask)
            address = f"{self.served.prefix}/api/v1/{call}?{urllib.parse.urlencode(parameters)}"
            began = time.perf_counter()
            self.connection.request("GET", address, headers=dict(self.served.headers))
            self.bodies.append(self.connection.getresponse().read())
            took.append(time.perf_counter() - began)
        if counts:
            self.took += took
            self.busy_ms += self.served.busy_ms() - before_ms

    def report(self, name: str, fleet: Fleet, start_ms: int, asks: list[Ask]) -> tuple[float, float]:
        """Prints the figures; (median, CPU of a query) in ms. Raises where the product is wrong."""
        cpu = self.busy_ms / len(self.took)
        moved = Fleet(fleet.ts - start_ms, fleet.values)
        wrong = sum(_wrong(body, ask, start_ms, moved) for body, ask in zip(self.bodies, asks, strict=True))
        if wrong and self.who == "product":
            raise RuntimeError(f"{name}: {wrong} points differ from the raw input")
        figures = report.quantiles(self.took)
        report.line(f"{name} {self.who}", **figures, cpu_ms=cpu, bytes=len(self.bodies[-1]), wrong=wrong)
        return figures["p50_ms"], cpu


def _wrong(body: bytes, ask: Ask, start_ms: int, fleet: Fleet) -> int:
    answer = json.loads(body)
    if answer.get("status") != "success":
        raise RuntimeError(f"{ask.expression}: {answer}")
    return differing(points_of(answer["data"], start_ms), ask.expected(fleet))
