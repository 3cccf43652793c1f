"""Presents the hosts of an app for the overview: which report, how old their data is, how busy they are.

A host is a source that pushes, or a value of the label ``host``, since one Telegraf may report for many. ``hosts_of``
reads the database and the engine; ``host_rows`` is pure. If the store is unavailable, only the numbers are missing.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import numpy as np

from frontend.presenters import panels
from frontend.queries import QuerySession
from spm.accounts import sources
from spm.accounts.models import App, Source
from spm.errors import SpmError
from spm.query.promql.engine import Engine

SPAN_MS = 1_800_000
STEP_MS = 60_000


@dataclass(frozen=True, slots=True)
class SeriesPoints:
    """One quantity of one host over the last half hour: a value or None per step."""

    values: list[float | None]
    times: list[int]

    @property
    def latest(self) -> float | None:
        """The newest value of the last two steps."""
        recent = [value for value in self.values[-2:] if value is not None]
        return recent[-1] if recent else None

    @property
    def last_ms(self) -> int | None:
        """The time of the last step with a value."""
        return next(
            (t for t, v in zip(reversed(self.times), reversed(self.values), strict=True) if v is not None), None
        )


NO_POINTS = SeriesPoints([], [])
_NO_PERIODS: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True)
class HostRow:
    """One row of the table of hosts."""

    name: str
    state: str
    age_ms: int
    cpu: SeriesPoints
    memory: SeriesPoints


@dataclass(frozen=True, slots=True)
class Hosts:
    """The table of hosts and its sums; ``problem`` says why there are no numbers."""

    rows: list[HostRow] = field(default_factory=list)
    problem: str = ""

    def count(self, state: str) -> int:
        """Count the hosts in a state."""
        return sum(row.state == state for row in self.rows)

    @property
    def up(self) -> int:
        """Hosts that report in time."""
        return self.count("up")

    @property
    def late(self) -> int:
        """Hosts that missed some reports."""
        return self.count("late")

    @property
    def gone(self) -> int:
        """Hosts that have not reported for long."""
        return self.count("gone")

    @property
    def busiest(self) -> HostRow | None:
        """The host with the highest CPU use now."""
        return max((row for row in self.rows if row.cpu.latest is not None), key=_cpu, default=None)


def hosts_of(app: App, session: AbstractContextManager[QuerySession], now_ms: int) -> Hosts:
    """List the hosts of an app, those in trouble first; the engine runs inside ``session``."""
    known_sources = list(Source.objects.filter(app=app))
    last_seen_ms = {s.name: int(s.last_seen.timestamp() * 1000) for s in known_sources}
    periods = {s.name: s.period_ms for s in known_sources if s.period_ms}
    try:
        with session as queries:
            cpu, memory = (
                _points_by_host(queries.engine(), expr, now_ms)
                for expr in (panels.cpu_by_host("1m"), panels.memory_by_host("1m"))
            )
    except SpmError as error:
        return Hosts(host_rows(last_seen_ms, {}, {}, now_ms, periods), f"The numbers cannot be read now: {error}")
    return Hosts(host_rows(last_seen_ms, cpu, memory, now_ms, periods))


def host_rows(
    last_seen_ms: Mapping[str, int],
    cpu: Mapping[str, SeriesPoints],
    memory: Mapping[str, SeriesPoints],
    now_ms: int,
    periods: Mapping[str, int] = _NO_PERIODS,
) -> list[HostRow]:
    """Make one row per host: late and gone hosts first, then by name. ``periods`` are announced sending periods."""
    rows = [
        _row(
            name,
            last_seen_ms.get(name),
            cpu.get(name, NO_POINTS),
            memory.get(name, NO_POINTS),
            now_ms,
            periods.get(name),
        )
        for name in {*last_seen_ms, *cpu, *memory}
    ]
    return sorted(rows, key=lambda row: (("late", "gone", "up").index(row.state), row.name))


def _row(
    name: str, source_ms: int | None, cpu: SeriesPoints, memory: SeriesPoints, now_ms: int, period_ms: int | None
) -> HostRow:
    heard_ms = max((ms for ms in (source_ms, cpu.last_ms, memory.last_ms) if ms is not None), default=0)
    return HostRow(name, sources.state(heard_ms, now_ms, period_ms), max(now_ms - heard_ms, 0), cpu, memory)


def _points_by_host(engine: Engine, expr: str, now_ms: int) -> dict[str, SeriesPoints]:
    end = now_ms // STEP_MS * STEP_MS + STEP_MS  # the unfinished step shows what has arrived so far
    result = engine.range(expr, end - SPAN_MS, end, STEP_MS)
    names = [labels.get("host", "") for labels in result.labels]
    lines, times = result.lines(np.arange(len(names))), result.times.tolist()
    return {name: SeriesPoints(line, times) for name, line in zip(names, lines, strict=True) if name}


def _cpu(row: HostRow) -> float:
    return row.cpu.latest or 0.0
