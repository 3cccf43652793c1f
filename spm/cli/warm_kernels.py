"""Compiles every numba kernel, with the types really used, by running the product's pipeline on a few samples.

1. A few lines of line protocol, usual and unusual ones, are parsed, stamped and written to a store in memory.
2. PromQL queries of every kind run, and are written in Prometheus' form, while the samples are in the log.
3. A run merges the samples and computes hours and days.
4. The queries run again.

A list of kernel calls would become incomplete; the pipeline itself cannot. The compiled code goes to
``NUMBA_CACHE_DIR``; nothing else is stored. Bodies in other formats than line protocol are a part of their own, which
another process can do meanwhile. It takes half as long as the rest, so it then helps with the pipeline, from its end:
what one process has compiled the other only loads. Enter by ``PARTS``.
"""

import gc
import sys
from collections.abc import Sequence

from ingest import protocols
from ingest.accept.stamper import Stamper
from ingest.protocols.influx.reader import parse
from ingest.writer import Writer
from rollups.run.driver import Driver
from rollups.run.local import LocalExecutor
from spm.clock import FakeClock
from spm.limits import HOUR_MS
from spm.query.formats import prometheus, remote_read
from spm.query.promql.engine import Engine
from spm.query.reader import AppStorage
from spm.query.request.batches import METRIC_NAME, Matcher
from spm.query.samples import sample_runs
from spm.query.series.label_table import LabelTable
from spm.query.view.decoded_rows import PageCache
from spm.store import id_set
from spm.store.backends import open_backend
from spm.store.backends.base import Backend
from spm.store.encoding import paged
from spm.store.keys import PlacementTable
from spm.store.rollup import sketch

APP = 1
_DAY = 20_000 * 24 * HOUR_MS
_HOURS, _HOSTS, _STEP_MS = 3, 3, 60_000
_OVER_TIME = ("avg", "min", "max", "sum", "count", "last")
_AGGREGATES = ("sum", "avg", "min", "max", "count")
QUERIES = (
    "cpu_usage",
    'cpu_usage{host=~"h[01]"} * 2 > 10',
    '{__name__=~"cpu_up|cpu_big"}',
    "rate(net_bytes[5m])",
    "increase(net_bytes[2h])",
    *(f"{name}_over_time(cpu_usage[10m])" for name in _OVER_TIME),
    *(f"{name}_over_time(cpu_usage[2h])" for name in _OVER_TIME),
    *(f"{name} by (host) (cpu_usage)" for name in _AGGREGATES),
    *(f"{name}(rate(net_bytes[5m]))" for name in _AGGREGATES),
    "quantile(0.5, cpu_usage)",
    "topk(1, cpu_usage)",
    "limitk(1, cpu_usage)",
    "stddev(cpu_usage)",
    "cpu_usage * on (host) group_left () net_bytes",
    "cpu_usage or net_bytes",
    "max_over_time(cpu_usage[30m:10m])",
    'label_replace(topk(1, cpu_usage), "host", "any", "host", ".*")',
    *(f"rate(net_bytes[5m] {bounds})" for bounds in ("anchored", "smoothed")),
    "cpu_usage smoothed",
    *(f"histogram_{call}, rpc_bucket)" for call in ("quantile(0.9", "fraction(0, 1")),
    *(f"sketch_quantile_over_time(0.9, cpu_usage[{span}])" for span in ("10m", "2h")),
)


def warm_bodies() -> None:
    """Parse bodies of all formats, then run the pipeline from its end."""
    protocols.warm()
    backend, clock = _store_bodies()
    _roll(backend, clock)
    for samples_of in ((backend, clock), _store_bodies()):  # rolled up, and raw
        _run_queries(*samples_of, QUERIES[::-1])


def warm_pipeline() -> None:
    """Run the pipeline from bodies of line protocol to answers."""
    backend, clock = _store_bodies()
    _run_queries(backend, clock, QUERIES)
    _roll(backend, clock)
    _run_queries(backend, clock, QUERIES)
    sketch.warm()  # a check of stored sketches has a kernel of its own
    for many in (id_set, paged, sample_runs):  # many series or samples do not fit into a rehearsal
        many.warm()


def _store_bodies() -> tuple[Backend, FakeClock]:
    """Return a store in memory that has all bodies, and its clock."""
    backend, clock = open_backend("memory://"), FakeClock(_DAY + _HOURS * HOUR_MS + 1)
    acceptor, writer = Stamper(1, clock), Writer(backend, PlacementTable())
    for number, body in enumerate(_bodies()):
        parsed = parse(body, now_ms=clock.now_ms(), precision="ms")
        writer.write(
            [acceptor.stamp_message(app=APP, source="rehearsal", parsed=parsed, message_id=bytes([number]) * 16)]
        )
    return backend, clock


def _roll(backend: Backend, clock: FakeClock) -> None:
    """Compact samples, and compute hours and the day, which are closed by then."""
    clock.advance(48 * HOUR_MS)
    driver = Driver(backend, clock)
    for minor in (True, False):
        driver.roll(LocalExecutor(backend), [APP], minor=minor)


def _bodies() -> list[bytes]:
    """One body per hour with all hosts on a grid, one off the grid, one of lines that the kernel does not parse."""
    bodies = []
    for hour in range(_HOURS):
        times = range(_DAY + hour * HOUR_MS + _STEP_MS, _DAY + (hour + 1) * HOUR_MS, _STEP_MS)
        lines = [_line(host, ts) for ts in times for host in range(_HOSTS)]
        bodies.append("\n".join(lines).encode())
    bodies.append("\n".join(_line(0, _DAY + 7 * n + 1) for n in range(1, 50)).encode())
    bodies.append(
        b'cpu,host=h\\ 1 usage=1e-3,note="text",up=t\ncpu,host=h9 usage=0.1,big=12345678901234567890\nbad line\n'
    )
    return bodies


def _line(host: int, ts: int) -> str:
    """Lines with gauges, a counter, and a histogram of two buckets."""
    lines = [
        f"cpu,host=h{host} usage={ts // _STEP_MS % 97}.{host}5,busy={host}i {ts}",
        f"net,host=h{host} bytes={ts // 9} {ts}",
        *(f"rpc,host=h{host},le={le} bucket={ts // 9 + more} {ts}" for le, more in (("1", 0), ("+Inf", 5))),
    ]
    return "\n".join(lines)


def _run_queries(backend: Backend, clock: FakeClock, queries: Sequence[str]) -> None:
    storage = AppStorage(backend, APP, placement=PlacementTable(), clock=clock, cache=PageCache())
    engine = Engine(storage, clock=clock)
    end = _DAY + _HOURS * HOUR_MS
    for question in queries:
        prometheus.query_body(engine.instant(question, end))
        prometheus.query_body(engine.range(question, _DAY + HOUR_MS, end, 300_000))
    for samples_of in ("cpu_usage[10m]", "cpu_usage[605s] smoothed"):
        prometheus.query_body(engine.instant(samples_of, end - 5_000))
    matchers = [Matcher(METRIC_NAME, "=", "cpu_usage")]
    labels = storage.select_hours(matchers, _DAY // HOUR_MS, _DAY // HOUR_MS).labels
    assert isinstance(labels, LabelTable), "BUG: labels that are no columns"
    labels.json()  # answers with few series do not use it
    storage.asof(clock.now_ms()).select(matchers, _DAY, end)  # as of now a few series need not be merged
    samples = storage.select(matchers, _DAY, end)
    assert list(remote_read.frames(0, samples)), "BUG: a pipeline without samples"


PARTS = {"pipeline": warm_pipeline, "bodies": warm_bodies}


if __name__ == "__main__":
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)  # else a seventh of a compiler's time: it makes many objects, and few circles
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()
