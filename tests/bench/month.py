"""A month of one app on LMDB, rolled up, and how long a chart of it takes a process that has just started.

The store is built in this process through the writer and a run of the local executor, a day at a time. ``cold`` then
asks from a new ``AppStorage`` with an empty page cache each time, so that the dictionary, manifests, months and rows
are read and decoded anew; compiled kernels are warm, as in a server that has answered before.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from ingest.accept.stamper import Stamper
from ingest.writer import Writer
from rollups.run.driver import Driver
from rollups.run.local import LocalExecutor
from spm.clock import FakeClock
from spm.limits import DAY_HOURS, HOUR_MS
from spm.query.promql.engine import Engine, Result
from spm.query.reader import AppStorage
from spm.query.view.decoded_rows import PageCache
from spm.store.backends import open_backend
from spm.store.backends.base import Backend
from spm.store.keys import PlacementTable
from spm.wire import Parsed, SeriesTable, canonical
from tests.support.fleet import FIELDS

APP = 7
DAY_MS = DAY_HOURS * HOUR_MS
FIRST_DAY = 20_454  # 2026-01-01
METRICS = tuple(f"cpu_{field.removeprefix('usage_')}" for field in FIELDS)
QUERIES: dict[str, tuple[str, int]] = {
    "one series, a point per day": ('max_over_time(cpu_user{host="host_7"}[1d])', DAY_MS),
    "one series, a point per 4 h": ('max_over_time(cpu_user{host="host_7"}[4h])', 4 * HOUR_MS),
    "one series, a point per hour": ('max_over_time(cpu_user{host="host_7"}[1h])', HOUR_MS),
    "one series, rate over the month": ('rate(cpu_user{host="host_7"}[30d])', 30 * DAY_MS),
    "all hosts, mean, a point per day": ("avg(avg_over_time(cpu_user[1d]))", DAY_MS),
}


def build(backend: Backend, *, days: int, hosts: int, step_s: int, roll_daily: bool = True) -> None:
    """Days of integer walks of every host and metric, rolled up into hours and days."""
    clock = FakeClock(FIRST_DAY * DAY_MS)
    acceptor, writer, rng = Stamper(1, clock), Writer(backend, PlacementTable()), np.random.default_rng(1)
    for day in range(FIRST_DAY, FIRST_DAY + days):
        writer.write(
            [
                acceptor.stamp_message(
                    app=APP, source=f"host_{h}", parsed=_day(h, day, step_s, rng), message_id=bytes(16)
                )
                for h in range(hosts)
            ]
        )
        clock.advance(DAY_MS)
        if roll_daily or day == FIRST_DAY + days - 1:
            roll(backend, clock.now_ms() + 2 * HOUR_MS)


def roll(backend: Backend, now_ms: int) -> None:
    """One run in this process."""
    driver = Driver(backend, FakeClock(now_ms))
    driver.roll(LocalExecutor(backend), [APP], minor=False, now_ms=now_ms)


def _day(host: int, day: int, step_s: int, rng: np.random.Generator) -> Parsed:
    """A day of one host's metrics, on a grid."""
    ts = day * DAY_MS + np.arange(step_s * 1000, DAY_MS + 1, step_s * 1000)
    forms = [canonical(metric, {"host": f"host_{host}"}) for metric in METRICS]
    values = (np.cumsum(rng.integers(-1, 2, (len(METRICS), len(ts))), axis=1) + 50).astype(np.float64)
    series = np.repeat(np.arange(len(METRICS), dtype=np.int32), len(ts))
    return Parsed(SeriesTable.from_canonical(forms), series, np.tile(ts, len(METRICS)), values.ravel())


def cold(backend: Backend, clock: FakeClock) -> AppStorage:
    """A reading process that has nothing cached."""
    return AppStorage(backend, APP, placement=PlacementTable(), clock=clock, cache=PageCache())


def ask(storage: AppStorage, expr: str, *, days: int, step_ms: int) -> Result:
    """The chart of the whole month."""
    end = (FIRST_DAY + days) * DAY_MS
    start = FIRST_DAY * DAY_MS + min(step_ms, days * DAY_MS)
    return Engine(storage).range(expr, start, end, step_ms)


def timed(act: Callable[[], object], times: int = 15) -> list[float]:
    """Seconds of each call."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        act()
        took.append(time.perf_counter() - began)
    return took


def median_ms(took: list[float]) -> float:
    """The median in milliseconds."""
    return 1000 * statistics.median(took)


def run(*, days: int, hosts: int, step_s: int, times: int = 15) -> dict[str, tuple[float, float]]:
    """Cold and warm milliseconds (medians) of each query over a month built for it."""
    medians = {}
    with tempfile.TemporaryDirectory(prefix="spm-month-") as folder:
        backend = open_backend(f"lmdb://{folder}")
        build(backend, days=days, hosts=hosts, step_s=step_s)
        clock = FakeClock((FIRST_DAY + days) * DAY_MS + 26 * HOUR_MS)
        for name, (expr, step_ms) in QUERIES.items():
            storage = cold(backend, clock)
            ask(storage, expr, days=days, step_ms=step_ms)  # compiles what is not compiled yet
            fresh = partial(_ask_cold, backend, clock, expr, days, step_ms)
            first = timed(fresh, times)
            again = timed(partial(ask, storage, expr, days=days, step_ms=step_ms), times)
            medians[name] = median_ms(first), median_ms(again)
        backend.close()
    return medians


def _ask_cold(backend: Backend, clock: FakeClock, expr: str, days: int, step_ms: int) -> Result:
    return ask(cold(backend, clock), expr, days=days, step_ms=step_ms)
