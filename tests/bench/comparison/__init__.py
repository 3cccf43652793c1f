"""A table of this product beside Debian's VictoriaMetrics, InfluxDB and Prometheus, in one run.

All get the same samples: half a day of --hosts as line protocol (Prometheus, which does not read it, gets remote
write), and two hours more by remote write, both in bodies as Telegraf and Prometheus send them. CPU is that of the
whole process tree of a store, until it has nothing left to do. Queries are asked in turns, and what they answer is
compared with the raw input. Then each store, new and empty, goes through the experiments of ``claims``. Enter by
``compare``.
"""

import argparse
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from spm.limits import HOUR_MS
from tests.bench import bodies, report, tsbs
from tests.bench.comparison import claims, stores
from tests.bench.comparison.stores import STORES, Store
from tests.servers.product import Served
from tests.support.fleet import FIELDS, Fleet

LINES, SAMPLES = 1_000, 2_000  # of a body, by Telegraf's and Prometheus' defaults
HOURS, REMOTE_HOURS = 12, 2
ROWS = {
    "ingest of line protocol, CPU a value": "line",
    "ingest of remote write, CPU a value": "remote",
    "compaction afterwards, CPU a value": "roll",
    "bytes on disk a value": "disk",
}
QUERIES = {
    "one series, 12 h, by minute": "single-groupby-1-1-12",
    "one metric of eight hosts, 1 h, by minute": "single-groupby-1-8-1",
    "one metric of every host, 12 h, by hour": "double-groupby-1",
    "the last value of every series": "lastpoint",
}
Cells = dict[str, dict[str, str]]  # row → store → cell


@dataclass(slots=True)
class _Side:
    """One store that runs, and its cells of the table."""

    store: Store
    served: Served
    cells: dict[str, str] = field(default_factory=dict)


def compare(options: argparse.Namespace, start_ms: int) -> None:
    """Measure everything and print the table."""
    with tempfile.TemporaryDirectory(prefix="spm-bench-") as name:
        folder = Path(name)
        sides = measured(folder, options.hosts, options.times, start_ms)
        names = {side.store.name: side.cells.pop("name") for side in sides}
        cells: Cells = {}
        with ThreadPoolExecutor(len(sides)) as pool:  # most of it is waiting
            judged = pool.map(lambda side: claims.judge(side.store, folder / f"{side.store.name}-claims") or {}, sides)
        for side, outcomes in zip(sides, judged, strict=True):
            report.line(f"claims {side.store.name}", **{claim: str(outcome) for claim, outcome in outcomes.items()})
            for row, cell in {**side.cells, **{claim: _word(outcome) for claim, outcome in outcomes.items()}}.items():
                cells.setdefault(row, {})[side.store.name] = cell
    print("\n".join(markdown(names, cells)))


def measured(folder: Path, hosts: int, times: int, start_ms: int) -> list[_Side]:
    """Ingest, queries and bytes of every store that is installed."""
    fleet = Fleet.make(hosts=hosts, steps=HOURS * 360, start_ms=start_ms)
    later = Fleet.make(hosts=hosts, steps=REMOTE_HOURS * 360, start_ms=int(fleet.ts[-1, 0]), seed=2)
    warm = Fleet.make(hosts=hosts, steps=60, start_ms=start_ms - HOUR_MS, seed=9)
    values = len(warm) + len(fleet) + len(later)
    with ExitStack() as stack:
        sides = []
        for store in STORES:
            served = store.start(folder / store.name)
            if served is not None:
                stack.callback(served.stop)
                sides.append(_Side(store, served))
        versions = stores.versions({side.store.name: side.served for side in sides})
        for side in sides:
            side.cells["name"] = f"{side.store.name} {versions[side.store.name]}".strip()
            _ingest(side, warm, fleet, later)
        _queries(sides, fleet, start_ms, times)
        for side in sides:
            bytes_a_value = side.store.stored_bytes(side.served) / values
            report.line(f"disk {side.store.name}", bytes_per_value=bytes_a_value)
            side.cells["disk"] = f"{bytes_a_value:.2f}"
    return sides


def _ingest(side: _Side, warm: Fleet, fleet: Fleet, later: Fleet) -> None:
    store = side.store
    line = (bodies.lines, store.lines, LINES // fleet.hosts) if store.lines else None
    remote = (bodies.remote_write, store.remote_write, SAMPLES // fleet.hosts // len(FIELDS))
    half = Fleet(warm.ts[30:], warm.values[30:])
    _pushed(side, Fleet(warm.ts[:30], warm.values[:30]), line or remote)
    _pushed(side, half, remote)
    spent = _pushed(side, fleet, line or remote)
    side.cells["line"] = f"{spent:.2f} µs" if line else "does not read it"
    side.cells["remote"] = f"{_pushed(side, later, remote):.2f} µs"
    side.cells["roll"] = "in the above"
    if store.name == "SPM":
        values = len(warm) + len(fleet) + len(later)
        spent = 1e6 * stores.manage(side.served, "roll", "--local") / values
        report.line("run SPM", cpu_us=spent)
        side.cells["roll"] = f"{spent:.2f} µs"


def _pushed(side: _Side, fleet: Fleet, form: tuple[bodies.Encode, str, int]) -> float:
    """Send a fleet, and return the CPU µs that the store spent on a value."""
    encode, path, steps = form
    ready = list(bodies.bodies(fleet, encode, steps=steps, hosts=fleet.hosts))
    before = side.served.cpu()
    refused = [status for status in side.store.push(side.served, path, ready) if status not in (200, 204)]
    if refused:
        raise RuntimeError(f"{side.store.name} refused {len(refused)} bodies: {refused[:5]}")
    stores.settle(side.served)
    cpu = report.spent(before, side.served.cpu(), len(fleet))
    report.line(
        f"{encode.__name__} {side.store.name}", values=len(fleet), **{f"cpu_us[{n}]": v for n, v in cpu.items()}
    )
    return cpu["all"]


def _queries(sides: Sequence[_Side], fleet: Fleet, start_ms: int, times: int) -> None:
    """Ask each kind in blocks of ten, store after store: one alone would find the processor's caches warm."""
    moved = Fleet(fleet.ts - start_ms, fleet.values)
    for row, kind in QUERIES.items():
        random = np.random.default_rng(7)
        draw = tsbs.types()[kind]
        asks = [draw(random, fleet.hosts, fleet.steps * 10, 1.0) for _ in range(tsbs.WARM + times)]
        spent, wrong = dict.fromkeys(range(len(sides)), 0.0), dict.fromkeys(range(len(sides)), 0)
        for at in range(0, len(asks), tsbs.BLOCK):
            block = asks[at : at + tsbs.BLOCK]
            for number, side in enumerate(sides):
                connection, before_ms = side.served.connection(), side.served.busy_ms()
                answers = [side.store.answer(side.served, connection, start_ms, ask) for ask in block]
                if at >= tsbs.WARM:
                    spent[number] += side.served.busy_ms() - before_ms
                wrong[number] += sum(
                    tsbs.differing(side.store.points(body, start_ms, ask), ask.expected(moved))
                    for body, ask in zip(answers, block, strict=True)
                )
        for number, side in enumerate(sides):
            report.line(f"{row} {side.store.name}", cpu_ms=spent[number] / times, wrong=wrong[number])
            side.cells[row] = f"{spent[number] / times:.2f} ms"
            if wrong[number] and side.store.name == "SPM":
                raise RuntimeError(f"{row}: {wrong[number]} points differ from the raw input")


def _word(outcome: claims.Outcome) -> str:
    return {True: "yes", False: "no"}[outcome] if isinstance(outcome, bool) else outcome


def titles() -> dict[str, str]:
    """Return the title of each row of the table → the row."""
    queries = {f"query, CPU: {row}": row for row in QUERIES}
    return {**ROWS, **queries, **{claim: claim for claim in claims.CLAIMS}}


def markdown(names: Mapping[str, str], cells: Cells) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| | " + " | ".join(names.values()) + " |"
    yield "|---|" + "---|" * len(names)
    for title, key in titles().items():
        yield f"| {title} | " + " | ".join(cells.get(key, {}).get(name, "not installed") for name in names) + " |"
