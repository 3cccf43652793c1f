"""The hosts of an app as the overview shows them: who reports, how late, how busy.

A host is a source that pushes, or a value of the label ``host``: one Telegraf may report for many. ``rows`` decides and
is pure; ``hosts_of`` asks the database and the engine first. A store that cannot answer costs numbers, not the page.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from frontend.presenters import panels
from frontend.queries import Asking
from spm.accounts import sources
from spm.accounts.models import App, Source
from spm.arrays import F64, I64
from spm.errors import SpmError
from spm.query.promql.engine import Engine

SPAN_MS = 1_800_000
STEP_MS = 60_000


@dataclass(frozen=True, slots=True)
class Reading:
    """One quantity of one host over the last half hour, a value or None per step."""

    values: list[float | None]
    times: list[int]

    @property
    def now(self) -> float | None:
        """The newest value, of the last two steps."""
        recent = [value for value in self.values[-2:] if value is not None]
        return recent[-1] if recent else None

    @property
    def last_ms(self) -> int | None:
        """The time of the last step with a value."""
        return next(
            (t for t, v in zip(reversed(self.times), reversed(self.values), strict=True) if v is not None), None
        )


NOTHING = Reading([], [])
_NO_PERIODS: Mapping[str, int] = {}


@dataclass(frozen=True, slots=True)
class HostRow:
    """One line of the table."""

    name: str
    state: str
    age_ms: int
    cpu: Reading
    memory: Reading


@dataclass(frozen=True, slots=True)
class Hosts:
    """The table and its sums; ``problem`` says why there are no numbers."""

    rows: list[HostRow] = field(default_factory=list)
    problem: str = ""

    def count(self, state: str) -> int:
        """How many hosts are in a state."""
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
        """Hosts not heard of for long."""
        return self.count("gone")

    @property
    def busiest(self) -> HostRow | None:
        """The host with the highest processor use now."""
        return max((row for row in self.rows if row.cpu.now is not None), key=_cpu, default=None)


def hosts_of(app: App, asking: AbstractContextManager[Asking], now_ms: int) -> Hosts:
    """The hosts of an app, those in trouble first; the engine is asked in the turn that ``asking`` takes."""
    known = list(Source.objects.filter(app=app))
    seen = {s.name: int(s.last_seen.timestamp() * 1000) for s in known}
    periods = {s.name: s.period_ms for s in known if s.period_ms}
    try:
        with asking as turn:
            cpu, memory = (
                _readings(turn.engine(), expr, now_ms)
                for expr in (panels.cpu_by_host("1m"), panels.memory_by_host("1m"))
            )
    except SpmError as error:
        return Hosts(rows(seen, {}, {}, now_ms, periods), f"The numbers cannot be read now: {error}")
    return Hosts(rows(seen, cpu, memory, now_ms, periods))


def rows(
    seen: Mapping[str, int],
    cpu: Mapping[str, Reading],
    memory: Mapping[str, Reading],
    now_ms: int,
    periods: Mapping[str, int] = _NO_PERIODS,
) -> list[HostRow]:
    """One row per host: late and gone ones first, then by name. ``periods``: how often those send that said so."""
    found = [
        _row(name, seen.get(name), cpu.get(name, NOTHING), memory.get(name, NOTHING), now_ms, periods.get(name))
        for name in {*seen, *cpu, *memory}
    ]
    return sorted(found, key=lambda row: (("late", "gone", "up").index(row.state), row.name))


def _row(name: str, seen_ms: int | None, cpu: Reading, memory: Reading, now_ms: int, period_ms: int | None) -> HostRow:
    heard = max((ms for ms in (seen_ms, cpu.last_ms, memory.last_ms) if ms is not None), default=0)
    return HostRow(name, sources.state(heard, now_ms, period_ms), max(now_ms - heard, 0), cpu, memory)


def _readings(engine: Engine, expr: str, now_ms: int) -> dict[str, Reading]:
    end = now_ms // STEP_MS * STEP_MS + STEP_MS  # the step that is not over yet shows what has come so far
    found = engine.range(expr, end - SPAN_MS, end, STEP_MS)
    names = [labels.get("host", "") for labels in found.labels]
    readings = columns(found.times, found.values, found.present)
    return {name: reading for name, reading in zip(names, readings, strict=True) if name}


def columns(times: I64, values: F64, present: npt.NDArray[np.bool_]) -> Sequence[Reading]:
    """Each series of a result with None where it has no value."""
    steps = times.tolist()
    return [
        Reading([value if there else None for value, there in zip(row, held, strict=True)], steps)
        for row, held in zip(values.tolist(), present.tolist(), strict=True)
    ]


def _cpu(row: HostRow) -> float:
    return row.cpu.now or 0.0
