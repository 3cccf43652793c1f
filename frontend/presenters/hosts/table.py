"""Presents the hosts of an app: which report, how old their data is, how busy they are, in which groups they stand.

A host is a source with a name that pushes, or a value of the label ``host``, since one Telegraf may report for many. A
source that is named after its token is none: it is listed under the sources only. Of thousands of hosts a page shows
``ROWS``, those in trouble first, and only their small lines are read. If the store is unavailable, only the numbers are
missing. ``hosts_of`` (a page of the table) and ``fleet_of`` (counts and groups of all) read the database and the
engine; ``list_rows``, ``select_page`` and ``group_rows`` are pure.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from math import isnan
from typing import Any

import numpy as np

from frontend.presenters import panels
from frontend.presenters.hosts.filters import HostFilter
from frontend.queries import QuerySession
from ingest.models import Agent
from spm.accounts import sources
from spm.accounts.models import App, Source
from spm.errors import SpmError
from spm.query.promql.engine import Engine
from spm.query.reader import AppStorage
from spm.query.request.batches import METRIC_NAME, Matcher

SPAN_MS = 1_800_000
STEP_MS = 60_000
ROWS = 50
MAP_MAX = 2_000  # squares of the map
STATES = ("gone", "late", "up")  # in the order in which they need a person
SORTS = ("problem", "name", "seen", "alerts", "cpu", "memory", "disk", "load")
GROUPING_FIRST = ("role", "service", "env", "region", "zone", "cluster")  # labels that people group by
_GROUPS_MAX = 24  # of one label: one with more values names hosts, it does not group them
_LABELS_READ = 30_000  # series
_LABELS_MS = 7 * 86_400_000
_NOW = "2m"  # a value of now is at most that old
_UNNAMED = re.compile(r"token-\d+")
_METRICS = "cpu_usage_total|cpu_usage_idle|mem_used_percent"
_SEEN = f'max by (host) (ts_of_last_over_time({{__name__=~"{_METRICS}"}}[30m]))'
_OF_HOSTS = (
    Matcher(METRIC_NAME, "=~", _METRICS),
    Matcher("cpu", "=~", "(cpu-total)?"),
    Matcher("host", "!=", ""),
)
_OWN_LABELS = frozenset((METRIC_NAME, "host", "cpu"))  # of the series, not of the host


@dataclass(frozen=True, slots=True)
class HostChoice:
    """What a page lists: hosts that a filter admits, by which number and label they are ordered, after which one."""

    filter: HostFilter = field(default_factory=HostFilter)
    sort: str = SORTS[0]
    by: str = ""
    after: str = ""
    most: int = ROWS


@dataclass(frozen=True, slots=True)
class HostRow:
    """One row of the table of hosts. ``cpu`` and ``memory`` are the last half hour, in percent."""

    name: str
    state: str
    age_ms: int
    firing: int = 0
    cpu_now: float | None = None
    memory_now: float | None = None
    disk: float | None = None
    load: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    agent: str = ""  # its version
    cpu: Sequence[float | None] = ()
    memory: Sequence[float | None] = ()

    @property
    def numbers(self) -> Mapping[str, float | None]:
        """What a filter compares."""
        return {
            "cpu": self.cpu_now,
            "memory": self.memory_now,
            "disk": self.disk,
            "load": self.load,
            "alerts": self.firing,
        }

    @property
    def facts(self) -> Mapping[str, str]:
        """The labels that a filter compares, with the state and the name as two more."""
        return {**self.labels, "state": self.state, "name": self.name}

    @property
    def level(self) -> int:
        """The step of the map's ramp, 0 to 6, for the CPU in use."""
        return int(min(max(self.cpu_now or 0.0, 0.0), 99.0) * 7 / 100)


@dataclass(frozen=True, slots=True)
class HostNumbers:
    """What the engine and the index say of all hosts, by name."""

    seen_ms: Mapping[str, int] = field(default_factory=dict)
    cpu: Mapping[str, float] = field(default_factory=dict)
    memory: Mapping[str, float] = field(default_factory=dict)
    disk: Mapping[str, float] = field(default_factory=dict)
    load: Mapping[str, float] = field(default_factory=dict)
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HostGroup:
    """The hosts that have one value of a label."""

    value: str
    rows: Sequence[HostRow]

    @property
    def up(self) -> int:
        """How many of them report in time."""
        return sum(row.state == "up" for row in self.rows)

    @property
    def down(self) -> int:
        """How many have not reported for long."""
        return sum(row.state == "gone" for row in self.rows)

    @property
    def firing(self) -> int:
        """The firing alerts of all."""
        return sum(row.firing for row in self.rows)


@dataclass(frozen=True, slots=True)
class Hosts:
    """Hosts of an app, and counts of all; ``problem`` says why there are no numbers."""

    rows: Sequence[HostRow] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    matching: int = 0
    after: str = ""  # the last host of this page, if there are more
    down: Sequence[HostRow] = ()
    labels: Sequence[str] = ()  # by which they can be grouped
    groups: Sequence[HostGroup] = ()
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


def hosts_of(
    app: App,
    session: AbstractContextManager[QuerySession],
    now_ms: int,
    *,
    chosen: HostChoice,
    firing: Mapping[str, int],
) -> Hosts:
    """List a page of an app's hosts; ``firing`` counts firing alerts by host; the engine runs inside ``session``."""
    problem, lines = "", dict[str, tuple[Sequence[float | None], Sequence[float | None]]]()
    seen, numbers = _seen_sources(app), HostNumbers()
    try:
        with session as queries:
            numbers = _numbers(queries, now_ms)
            page, _, _ = select_page(list_rows(seen, numbers, firing, now_ms), chosen)
            lines = _lines(queries, [row.name for row in page[:ROWS]], now_ms)
    except SpmError as error:
        problem = f"The numbers cannot be read now: {error}"
    rows = list_rows(seen, numbers, firing, now_ms)
    page, after, matching = select_page(rows, chosen)
    storable = [row.name for row in page if "\0" not in row.name]  # PostgreSQL takes no NUL, a series may have one
    versions = dict(Agent.objects.filter(app=app, name__in=storable).values_list("name", "version"))
    drawn = [
        replace(row, cpu=cpu, memory=memory, agent=versions.get(row.name, ""))
        for row in page
        for cpu, memory in [lines.get(row.name, ((), ()))]
    ]
    counts, labels = Counter(row.state for row in rows), grouping_labels(rows)
    groups = group_rows(drawn, chosen.by) if chosen.by in labels else [HostGroup("", drawn)]
    return Hosts(drawn, counts, matching, after, labels=labels, groups=groups, problem=problem)


def fleet_of(
    app: App, session: AbstractContextManager[QuerySession], now_ms: int, *, by: str, firing: Mapping[str, int]
) -> Hosts:
    """Count an app's hosts, list those that are down, and group them by a label, or by the first one that groups."""
    problem, numbers, seen = "", HostNumbers(), _seen_sources(app)
    try:
        with session as queries:
            seen_ms = _seen_ms(queries, now_ms)
            numbers = HostNumbers(seen_ms, labels=labels_of_hosts(queries.storage, now_ms))
    except SpmError as error:
        problem = f"The numbers cannot be read now: {error}"
    rows = list_rows(seen, numbers, firing, now_ms)
    labels = grouping_labels(rows)
    label = by if by in labels else next(iter(labels), "")
    down = [row for row in rows if row.state == "gone"]
    counts = Counter(row.state for row in rows)
    return Hosts(
        (),
        counts,
        len(rows),
        down=down,
        labels=labels,
        groups=group_rows(rows, label) if label else (),
        problem=problem,
    )


def labels_of_hosts(storage: AppStorage, now_ms: int) -> dict[str, dict[str, str]]:
    """Return the labels of each host of the last week, as its series of CPU and memory have them."""
    labels: dict[str, dict[str, str]] = {}
    for each in storage.series([_OF_HOSTS], now_ms - _LABELS_MS, now_ms, most=_LABELS_READ):
        labels.setdefault(each["host"], {}).update(
            {name: value for name, value in each.items() if name not in _OWN_LABELS}
        )
    return labels


def grouping_labels(rows: Sequence[HostRow]) -> list[str]:
    """Return the labels with few values, which at least half of the hosts have: known ones first. Pure."""
    values: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        for name, value in row.labels.items():
            values[name][value] += 1
    few = [name for name, counts in values.items() if len(counts) <= _GROUPS_MAX and 2 * counts.total() >= len(rows)]
    known = {name: at for at, name in enumerate(GROUPING_FIRST)}
    return sorted(few, key=lambda name: (len(values[name]) == 1, known.get(name, len(known)), name))


def group_rows(rows: Sequence[HostRow], by: str) -> list[HostGroup]:
    """Group rows by a label, those without it last. Pure."""
    groups: dict[str, list[HostRow]] = defaultdict(list)
    for row in rows:
        groups[row.labels.get(by, "")].append(row)
    return [HostGroup(value, groups[value]) for value in sorted(groups, key=lambda value: (not value, value))]


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
        rows.append(
            HostRow(
                name,
                state,
                age_ms,
                firing.get(name, 0),
                numbers.cpu.get(name),
                numbers.memory.get(name),
                numbers.disk.get(name),
                numbers.load.get(name),
                numbers.labels.get(name, {}),
            )
        )
    return sorted(rows, key=lambda row: (STATES.index(row.state), -row.firing, row.name))


def select_page(rows: Sequence[HostRow], chosen: HostChoice) -> tuple[Sequence[HostRow], str, int]:
    """Return the rows of a page, the last of them if there are more, and how many match at all."""
    matching = sort_rows([row for row in rows if chosen.filter.admits(row.name, row.facts, row.numbers)], chosen)
    first = next((at + 1 for at, row in enumerate(matching) if row.name == chosen.after), 0) if chosen.after else 0
    page = matching[first : first + chosen.most]
    return page, page[-1].name if first + chosen.most < len(matching) else "", len(matching)


def sort_rows(rows: Sequence[HostRow], chosen: HostChoice) -> Sequence[HostRow]:
    """Order rows that stand with problems first: by name, by age, or by a number, the highest first. Pure."""
    if chosen.sort == "name":
        return sorted(rows, key=lambda row: row.name)
    if chosen.sort == "seen":
        return sorted(rows, key=lambda row: -row.age_ms)
    if chosen.sort in SORTS[1:]:
        return sorted(rows, key=lambda row: -(-1.0 if (value := row.numbers[chosen.sort]) is None else value))
    return rows


def _seen_sources(app: App) -> dict[str, tuple[int, int | None]]:
    """Read when each source that is a host sent its last message, and the period that it announced."""
    known = Source.objects.filter(app=app).values_list("name", "last_seen", "period_ms")
    return {name: (int(last.timestamp() * 1000), period_ms) for name, last, period_ms in known if is_host(name)}


def _seen_ms(queries: QuerySession, now_ms: int) -> dict[str, int]:
    return {name: round(seconds * 1000) for name, seconds in _instant(queries.engine(), _SEEN, now_ms).items()}


def _numbers(queries: QuerySession, now_ms: int) -> HostNumbers:
    writers = (panels.cpu_by_host, panels.memory_by_host, panels.disk_by_host, panels.load_by_host)
    cpu, memory, disk, load = (_instant(queries.engine(), write(_NOW), now_ms) for write in writers)
    labels = labels_of_hosts(queries.storage, now_ms)
    return HostNumbers(_seen_ms(queries, now_ms), cpu, memory, disk, load, labels)


def _instant(engine: Engine, expr: str, now_ms: int) -> dict[str, float]:
    result = engine.instant(expr, now_ms)
    values = result.values[:, 0].tolist() if len(result.labels) else []
    rows = zip(result.labels, values, strict=True)
    return {name: value for labels, value in rows if (name := labels.get("host")) and not isnan(value)}


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
