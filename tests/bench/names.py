"""One app of very many series: how long its names and a small selector take, how long a cold start, how many bytes.

The store is built here, a sample of each series, through the writer and a run. Reading happens in a process of its own
that has loaded its kernels, by questions to a small app, and nothing else: the first question reads the dictionary, and
what that adds to the process is told beside the whole of it. Hosts and metrics of warm questions are others each time.
"""

import multiprocessing
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import psutil

from ingest.accept.stamper import Stamper
from ingest.writer import Writer
from spm import query
from spm.clock import FakeClock
from spm.limits import HOUR_MS
from spm.query.formats import prometheus
from spm.query.promql.engine import Engine
from spm.query.reader import AppStorage
from spm.query.request.batches import METRIC_NAME, Matcher
from spm.store.backends import open_backend
from spm.store.keys import PlacementTable
from spm.wire import Parsed, SeriesTable, canonical
from tests.bench import month, report

APP, START_MS = month.APP, month.FIRST_DAY * month.DAY_MS
METRICS = 100  # of each host; its selector of ten series names ten of them
AT_ONCE = 20_000  # series of one message
TIMES = 20


def run(series: int) -> None:
    """Build, then measure in a new process, and print."""
    with tempfile.TemporaryDirectory(prefix="spm-bench-") as name:
        folder, hosts = Path(name), max(1, series // METRICS)
        began = time.process_time()
        for app, some in ((APP + 1, 10), (APP, hosts)):
            build(folder, app, some)
        report.line(f"{hosts * METRICS} series: store built", cpu_s=time.process_time() - began)
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as reader:
            for what, figures in reader.submit(measured, folder, hosts).result().items():
                report.line(f"{hosts * METRICS} series: {what}", **figures)


def build(folder: Path, app: int, hosts: int) -> None:
    """A sample of each series, all of one hour; those of ``APP`` compacted."""
    store, clock = open_backend(f"lmdb://{folder}"), FakeClock(START_MS)
    acceptor, writer = Stamper(1, clock), Writer(store, PlacementTable())
    for first in range(0, hosts, AT_ONCE // METRICS):
        some = range(first, min(first + AT_ONCE // METRICS, hosts))
        table = SeriesTable.from_canonical(
            [
                canonical(f"metric_{m}", {"hostname": f"host_{h}", "rack": str(h % 500), "region": f"eu-{h % 4}"})
                for h in some
                for m in range(METRICS)
            ]
        )
        rows = np.arange(len(table), dtype=np.int32)
        parsed = Parsed(table, rows, np.full(len(rows), START_MS + 1_000), rows.astype(np.float64))
        writer.write([acceptor.stamp_message(app=app, source="fleet", parsed=parsed, message_id=bytes(16))])
    if app == APP:
        month.roll(store, START_MS + 26 * HOUR_MS)
    store.close()


def measured(folder: Path, hosts: int) -> dict[str, dict[str, float]]:
    """Figures by what was done; in a process that has loaded nothing of the app."""
    query.configure(f"lmdb://{folder}")
    for ask in _asks(query.storage_for(APP + 1), 10).values():
        ask()
    storage, process = query.storage_for(APP), psutil.Process()
    before, began, cpu = process.memory_info().rss, time.perf_counter(), time.process_time()
    answer = storage.label_values(METRIC_NAME, [], 0, START_MS + HOUR_MS)
    assert len(answer) == METRICS, f"BUG: {len(answer)} metrics"
    cold = {"wall_s": time.perf_counter() - began, "cpu_s": time.process_time() - cpu}
    rss = process.memory_info().rss
    figures = {"cold load": {**cold, "added_mb": (rss - before) / 1e6, "rss_mb": rss / 1e6}}
    for what, ask in _asks(storage, hosts).items():
        figures[what] = _timed(ask)
    rss = process.memory_info().rss
    return {**figures, "memory after all": {"added_mb": (rss - before) / 1e6, "rss_mb": rss / 1e6}}


def _asks(storage: AppStorage, hosts: int) -> dict[str, Callable[[], int]]:
    """Questions by what they ask for; each tells the bytes of its answer."""
    random = np.random.default_rng(3)

    def host() -> str:
        return f"host_{random.integers(hosts)}"

    return {
        f"values of {METRIC_NAME}": lambda: _values(storage, METRIC_NAME),
        f"values of hostname ({hosts})": lambda: _values(storage, "hostname"),
        "values of hostname, of a metric": lambda: _values(
            storage, "hostname", Matcher(METRIC_NAME, "=", f"metric_{random.integers(METRICS)}")
        ),
        "names of labels": lambda: len(prometheus.success(storage.label_names([], 0, START_MS + HOUR_MS))),
        "a selector of 10 series": lambda: _instant(storage, f'{{__name__=~"metric_1.",hostname="{host()}"}}'),
        "the same by an expression over hosts": lambda: _instant(
            storage, f'{{__name__=~"metric_1.",hostname=~"{host()}(:.*)?"}}'
        ),
    }


def _values(storage: AppStorage, label: str, *matchers: Matcher) -> int:
    answer = storage.label_values(label, [matchers] if matchers else [], 0, START_MS + HOUR_MS)
    return len(prometheus.success(answer))


def _instant(storage: AppStorage, text: str) -> int:
    answer = Engine(storage).instant(text, START_MS + 60_000)
    assert len(answer.labels) == 10, f"BUG: {len(answer.labels)} series of {text}"
    return len(prometheus.query_body(answer))


def _timed(ask: Callable[[], int]) -> dict[str, float]:
    began = time.perf_counter()
    size = ask()
    first, took = time.perf_counter() - began, []
    cpu = time.process_time()
    for _ in range(TIMES):
        began = time.perf_counter()
        ask()
        took.append(time.perf_counter() - began)
    each = (time.process_time() - cpu) / TIMES
    return {"first_ms": first * 1e3, **report.quantiles(took), "cpu_ms": each * 1e3, "bytes": size}
