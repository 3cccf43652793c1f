"""How fast runs on Spark compact and roll up, beside a plain Spark SQL job over the same samples in Parquet.

Start-up is apart: a session's start and a first run over a smaller store, in which workers start and kernels load. CPU
is that of this process (the driver), its JVM and the JVM's Python workers. The SQL job has a session of its own, with
Spark's own settings for long jobs, and a warm-up of its own.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from rollups.run.driver import Driver, RunReport
from rollups.spark.job import SparkExecutor
from rollups.spark.session import spark
from spm.clock import SystemClock
from spm.limits import HOUR_MS
from spm.store.backends import open_backend
from tests.bench import heap, report
from tests.servers.product import processes
from tests.support.fleet import STEP_MS

MASTER = "local[2]"
TIMES = 10  # the large store, measured against the small one
LONG_JOBS = {
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.adaptive.enabled": "true",
    "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
    "spark.driver.memory": "2g",
}


def compact(options: argparse.Namespace) -> None:
    """A run over ``--steps`` reports, and over ten times as many; one dirty hour in either; the SQL job."""
    with tempfile.TemporaryDirectory(prefix="spm-bench-") as name:
        folder, jitter = Path(name), options.jitter
        sizes = {"small": options.steps, "large": options.steps * TIMES}
        for size, steps in sizes.items():
            began = time.perf_counter()
            written = heap.build(folder / size, hosts=options.hosts, steps=steps, jitter_ms=jitter)
            report.line(f"{size} store written", samples=written, seconds=time.perf_counter() - began)
            heap.to_parquet(folder / f"{size}-parquet", hosts=options.hosts, steps=steps, jitter_ms=jitter)
        rates = _ours(folder, sizes, options.hosts)
        if not options.no_peer:
            ours, theirs = rates, _theirs(folder, sizes, options.hosts)
            report.line("ratio of samples/s", ours_to_sql=ours / theirs)


def _ours(folder: Path, sizes: Mapping[str, int], hosts: int) -> float:
    began = time.perf_counter()
    with spark(MASTER, folder / "session") as session:
        report.line("session", start_s=time.perf_counter() - began, **_spent({}, 1))
        rate = 0.0
        for size, steps in sizes.items():
            name = "first run (start-up)" if size == "small" else "run (steady)"
            rate = _rolled(session, folder / size, steps, name)
        for _ in range(2):  # the second time: what a run costs that is not its first
            for size in sizes:
                heap.build(folder / size, hosts=hosts, steps=HOUR_MS // STEP_MS)
                _rolled(session, folder / size, sizes[size], f"one dirty hour, {size} store")
    return rate


def _rolled(session: SparkSession, folder: Path, steps: int, name: str) -> float:
    """One run; samples per second."""
    url = f"lmdb://{folder}"
    driver = Driver(open_backend(url), SystemClock())

    def roll() -> RunReport:
        return driver.roll(SparkExecutor(session, url), [heap.APP], now_ms=heap.end_ms(steps))

    with _timed() as figures:
        done = roll()
    if done.errors:
        raise RuntimeError(done.errors[0])
    rate = done.samples / figures["seconds"]
    report.line(name, **_figures_of(done.samples, figures))
    return rate


# --- the plain job ----------------------------------------------------------------------------------------------------


def hourly(samples: DataFrame) -> DataFrame:
    """Count, sum, min, max, first and last of every series and hour, as anybody would write it."""
    hour = F.floor((F.col("ts") - 1) / HOUR_MS)
    return (
        samples.select("series", hour.alias("hour"), "ts", "value")
        .groupBy("series", "hour")
        .agg(
            F.count("value").alias("count"),
            F.sum("value").alias("sum"),
            F.min("value").alias("min"),
            F.max("value").alias("max"),
            F.min_by("value", "ts").alias("first"),
            F.max_by("value", "ts").alias("last"),
        )
        .select("series", "hour", "count", "sum", "min", "max", "first", "last")
    )


def _theirs(folder: Path, sizes: Mapping[str, int], hosts: int) -> float:
    rate = 0.0
    with spark(MASTER, folder / "plain", LONG_JOBS) as session:
        for size, steps in sizes.items():
            samples = hosts * steps * 10
            with _timed() as figures:
                out = str(folder / f"{size}-hourly")
                hourly(session.read.parquet(str(folder / f"{size}-parquet"))).write.parquet(out)
            rate = samples / figures["seconds"]
            name = "plain Spark SQL, first (start-up)" if size == "small" else "plain Spark SQL (steady)"
            report.line(name, **_figures_of(samples, figures))
    return rate


def _figures_of(samples: int, figures: Mapping[str, float]) -> dict[str, object]:
    seconds = figures["seconds"]
    each = {f"cpu_us[{name}]": 1e6 * used / samples for name, used in figures.items() if name != "seconds"}
    return {"samples": samples, "seconds": seconds, "samples_per_s": samples / seconds, **each}


# --- clocks -----------------------------------------------------------------------------------------------------------


@contextmanager
def _timed() -> Iterator[dict[str, float]]:
    """Wall seconds, and CPU seconds by process, of what stands inside."""
    figures: dict[str, float] = {}
    before, began = _cpu(), time.perf_counter()
    yield figures
    figures["seconds"] = time.perf_counter() - began
    figures |= {name: used - before.get(name, 0.0) for name, used in _cpu().items()}


def _spent(before: Mapping[str, float], per: int) -> dict[str, float]:
    return {f"cpu_s[{n}]": (used - before.get(n, 0.0)) / per for n, used in _cpu().items()}


def _cpu() -> dict[str, float]:
    """CPU seconds so far of the driver, the JVM and its Python workers."""
    seconds_by_role: dict[str, float] = {}
    mine = psutil.Process().pid
    for process, line in processes(mine):
        role = "driver" if process.pid == mine else "jvm" if "java" in line else "workers"
        times: Callable[[], tuple[float, ...]] = process.cpu_times
        user, system, *_ = times()
        seconds_by_role[role] = seconds_by_role.get(role, 0.0) + user + system
    return seconds_by_role
