"""Presents the hosts of an app for its home page: which report, how old their data is, how busy they are.

A host is a source with a name that pushes, or a value of the label ``host``, since one Telegraf may report for many. A
source that is named after its token is none: it is listed under the sources only. Of thousands of hosts a page shows
``ROWS``, those in trouble first, and only their small lines are read. If the store is unavailable, only the numbers are
missing. ``hosts_of`` reads the database and the engine; ``list_rows`` and ``select_page`` are pure.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from frontend.presenters import panels
from frontend.queries import QuerySession
from spm.accounts import sources
from spm.accounts.models import App, Source
from spm.errors import SpmError
from spm.query.promql.engine import Engine

SPAN_MS = 1_800_000
STEP_MS = 60_000
ROWS = 50
STATES = ("gone", "late", "up")  # in the order in which they need a person
_NOW = "2m"  # a value of now is at most that old
_UNNAMED = re.compile(r"token-\d+")
_SEEN = 'max by (host) (ts_of_last_over_time({__name__=~"cpu_usage_total|cpu_usage_idle|mem_used_percent"}[30m]))'


@dataclass(frozen=True, slots=True)
class HostFilter:
    """What a page lists: hosts whose name contains the text, in one state or any, after a host of the list."""

    text: str = ""
    state: str = ""
    after: str = ""


@dataclass(frozen=True, slots=True)
class HostRow:
    """One row of the table of hosts. ``cpu`` and ``memory`` are the last half hour, in percent."""

    name: str
    state: str
    age_ms: int
    firing: int = 0
    cpu_now: float | None = None
    memory_now: float | None = None
    cpu: Sequence[float | None] = ()
    memory: Sequence[float | None] = ()


@dataclass(frozen=True, slots=True)
class HostNumbers:
    """What the engine says of all hosts now, by name."""

    seen_ms: Mapping[str, int] = field(default_factory=dict)
    cpu: Mapping[str, float] = field(default_factory=dict)
    memory: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Hosts:
    """One page of the table of hosts, and counts of all; ``problem`` says why there are no numbers."""

    rows: Sequence[HostRow] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    matching: int = 0
    after: str = ""  # the last host of this page, if there are more
    down: Sequence[HostRow] = ()
    busiest: HostRow | None = None
    problem: str = ""

    @property
    def total(self) -> int:
        """All hosts of the app."""
        return sum(self.counts.values())

    @property
    def up(self) -> int:
        """Hosts that report in time."""
        return self.counts.get("up", 0)

    @property
    def late(self) -> int:
        """Hosts that missed some reports."""
        return self.counts.get("late", 0)

    @property
    def gone(self) -> int:
        """Hosts that have not reported for long."""
        return self.counts.get("gone", 0)


def hosts_of(
    app: App,
    session: AbstractContextManager[QuerySession],
    now_ms: int,
    *,
    chosen: HostFilter,
    firing: Mapping[str, int],
) -> Hosts:
    """List a page of an app's hosts; ``firing`` counts firing alerts by host; the engine runs inside ``session``."""
    problem, lines = "", dict[str, tuple[Sequence[float | None], Sequence[float | None]]]()
    known = Source.objects.filter(app=app).values_list("name", "last_seen", "period_ms")
    seen = {name: (int(last.timestamp() * 1000), period_ms) for name, last, period_ms in known if is_host(name)}
    rows = list_rows(seen, HostNumbers(), firing, now_ms)
    page, after, matching = select_page(rows, chosen)
    try:
        with session as queries:
            rows = list_rows(seen, _numbers(queries, now_ms), firing, now_ms)
            page, after, matching = select_page(rows, chosen)
            lines = _lines(queries, [row.name for row in page], now_ms)
    except SpmError as error:
        problem = f"The numbers cannot be read now: {error}"
    drawn = [replace(row, cpu=cpu, memory=memory) for row in page for cpu, memory in [lines.get(row.name, ((), ()))]]
    busiest = max((row for row in rows if row.cpu_now is not None), key=lambda row: row.cpu_now or 0.0, default=None)
    down = [row for row in rows if row.state == "gone"]
    return Hosts(drawn, Counter(row.state for row in rows), matching, after, down, busiest, problem)


def is_host(source: str) -> bool:
    """Whether a source counts as a host by its name: those that a token or the system names do not."""
    return source not in (sources.SYSTEM_SOURCE, sources.OTHER_SOURCES) and not _UNNAMED.fullmatch(source)


def list_rows(
    seen: Mapping[str, tuple[int, int | None]], numbers: HostNumbers, firing: Mapping[str, int], now_ms: int
) -> list[HostRow]:
    """Make one row per host: those down, late and with firing alerts first, then by name.

    ``seen`` has the last message of each source in ms, and the sending period that it announced.
    """
    rows = []
    for name in {*seen, *numbers.seen_ms}:
        source_ms, period_ms = seen.get(name, (0, None))
        heard_ms = max(source_ms, numbers.seen_ms.get(name, 0))
        state, age_ms = sources.state(heard_ms, now_ms, period_ms), max(now_ms - heard_ms, 0)
        values = numbers.cpu.get(name), numbers.memory.get(name)
        rows.append(HostRow(name, state, age_ms, firing.get(name, 0), *values))
    return sorted(rows, key=lambda row: (STATES.index(row.state), -row.firing, row.name))


def select_page(rows: Sequence[HostRow], chosen: HostFilter) -> tuple[Sequence[HostRow], str, int]:
    """Return the rows of a page, the last of them if there are more, and how many match at all."""
    text = chosen.text.casefold()
    matching = [row for row in rows if text in row.name.casefold() and chosen.state in ("", row.state)]
    first = next((at + 1 for at, row in enumerate(matching) if row.name == chosen.after), 0) if chosen.after else 0
    page = matching[first : first + ROWS]
    return page, page[-1].name if first + ROWS < len(matching) else "", len(matching)


def _numbers(queries: QuerySession, now_ms: int) -> HostNumbers:
    seen, cpu, memory = (
        _instant(queries.engine(), expr, now_ms)
        for expr in (_SEEN, panels.cpu_by_host(_NOW), panels.memory_by_host(_NOW))
    )
    return HostNumbers({name: round(seconds * 1000) for name, seconds in seen.items()}, cpu, memory)


def _instant(engine: Engine, expr: str, now_ms: int) -> dict[str, float]:
    result = engine.instant(expr, now_ms)
    values = result.values[:, 0].tolist() if len(result.labels) else []
    return {name: value for labels, value in zip(result.labels, values, strict=True) if (name := labels.get("host"))}


def _lines(queries: QuerySession, names: Sequence[str], now_ms: int) -> dict[str, Any]:
    """Read CPU and memory of the last half hour of some hosts; the unfinished step shows what has arrived so far."""
    if not names:
        return {}
    end = now_ms // STEP_MS * STEP_MS + STEP_MS
    among = f"host=~{panels.quote('|'.join(map(re.escape, names)))}"
    lines = []
    for expr in (panels.cpu_by_host("90s", among), panels.memory_by_host("90s", among)):
        result = queries.engine().range(expr, end - SPAN_MS, end, STEP_MS)
        values = result.lines(np.arange(len(result.labels)))
        lines.append({labels.get("host", ""): line for labels, line in zip(result.labels, values, strict=True)})
    return {name: tuple(each.get(name, ()) for each in lines) for name in names}
