"""A small fleet with a past: believable numbers for four hosts, one of which was silent for a while.

``fill`` writes through the code of ingest, stamps included. The numbers come from a seed, so that a picture
looks the same each time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ingest.accept.stamper import Stamper, take_process
from ingest.writer import Writer
from spm.arrays import F64
from spm.clock import SystemClock, random_bytes
from spm.store.backends import open_backend
from spm.store.keys import PlacementTable
from spm.wire import Parsed, SeriesTable, canonical
from tests.support import notes

STEP_MS = 10_000
GIB = 1 << 30
HOSTS = ("db-1", "web-1", "web-2", "worker-1")
SILENT_MS = (2_400_000, 1_500_000)  # db-1 said nothing from 40 to 25 minutes before now


@dataclass(frozen=True, slots=True)
class Line:
    """One series over all times."""

    metric: str
    labels: dict[str, str]
    values: F64


def fill(store_url: str, app_id: int, *, now_ms: int, span_ms: int = 7_200_000, hosts: Sequence[str] = HOSTS) -> int:
    """Write ``span_ms`` of history up to now for these hosts; returns the number of samples."""
    written = 0
    for host in hosts:
        times = times_of(host, now_ms, span_ms)
        lines = list(_lines(host, HOSTS.index(host), times, now_ms))
        written += write_lines(store_url, app_id, host, lines, times)
        for moment in (now_ms - span_ms, now_ms):
            notes.see_source(app_id, host, moment)
    return written


def write_lines(store_url: str, app_id: int, source: str, lines: list[Line], times: npt.NDArray[np.int64]) -> int:
    """Write series of a source, each with a value per time; returns the number of samples."""
    backend = open_backend(store_url)
    parsed = _parsed(lines, times)
    acceptor = Stamper(take_process(backend), SystemClock())
    message = acceptor.stamp_message(app=app_id, source=source, parsed=parsed, message_id=random_bytes(16))
    Writer(backend, PlacementTable()).write([message])
    return len(parsed.ts)


def times_of(host: str, now_ms: int, span_ms: int) -> npt.NDArray[np.int64]:
    """Return when a host sent."""
    times = np.arange(now_ms - span_ms, now_ms, STEP_MS, dtype=np.int64) + 1 + HOSTS.index(host) * 137
    silent = (times > now_ms - SILENT_MS[0]) & (times < now_ms - SILENT_MS[1])
    return times[~silent] if host == "db-1" else times


def _parsed(lines: list[Line], times: npt.NDArray[np.int64]) -> Parsed:
    table = SeriesTable.from_canonical([canonical(line.metric, line.labels) for line in lines])
    index = np.tile(np.arange(len(lines), dtype=np.int32), len(times))
    values = np.stack([line.values for line in lines], axis=1).ravel()
    return Parsed(table, index, np.repeat(times, len(lines)), values)


def _lines(host: str, number: int, times: npt.NDArray[np.int64], now_ms: int) -> Iterator[Line]:
    draw = np.random.default_rng(number + 7)
    count, hours = len(times), (times - now_ms) / 3_600_000
    wave = 18 + 9 * number + 8 * np.sin(hours * (2.1 + number)) + 3 * np.sin(hours * 23)
    user = np.clip(wave + draw.normal(0, 1.4, count) + _bursts(draw, count), 1, 88)
    system = np.clip(user * 0.28 + draw.normal(0, 0.5, count), 0.2, 30)
    waiting = np.clip(draw.exponential(0.6, count), 0, 12)
    for kind, values in (("user", user), ("system", system), ("iowait", waiting), ("steal", user * 0)):
        yield Line(f"cpu_usage_{kind}", {"host": host}, values.round(3))
    yield Line("cpu_usage_total", {"host": host}, np.clip(user + system, 0, 100).round(3))
    share = np.clip(41 + 9 * number + 4 * np.sin(hours * 1.3) + np.cumsum(draw.normal(0, 0.05, count)), 5, 95)
    total = 16.0 * GIB
    yield Line("mem_used_percent", {"host": host}, share.round(1))
    yield Line("mem_used", {"host": host}, (share / 100 * total).round())
    yield Line("mem_available", {"host": host}, ((100 - share) / 100 * total).round())
    yield Line("mem_total", {"host": host}, np.full(count, total))
    for minutes, wide in ((1, 1), (5, 30), (15, 90)):
        yield Line(f"load_load{minutes}", {"host": host}, (_smooth(user, wide) / 22).round(2))
    for path, percent in (("/", 38.2 + number), ("/var", 71.4 - 2 * number)):
        filled = percent + np.maximum(hours + 2, 0) * 0.4
        yield Line("disk_used_percent", {"host": host, "path": path, "device": "sda1"}, filled.round(2))
    for interface, mean in (("eth0", 2.4e6), ("eth1", 3.1e5)):
        for way in ("recv", "sent"):
            yield _counter(f"net_bytes_{way}", {"host": host, "interface": interface}, draw, user * mean / 25)
    for way in ("read", "write"):
        yield _counter(f"diskio_{way}_bytes", {"host": host, "name": "sda"}, draw, waiting * 4e5 + 2e4)
    yield Line("processes_total", {"host": host}, (212 + 30 * number + draw.integers(-3, 4, count)).astype(float))
    yield Line("processes_running", {"host": host}, draw.integers(1, 6, count).astype(float))


def _counter(metric: str, labels: dict[str, str], draw: np.random.Generator, per_second: F64) -> Line:
    return Line(metric, labels, np.cumsum(per_second * 10 * draw.uniform(0.7, 1.3, len(per_second))).round())


def _bursts(draw: np.random.Generator, count: int) -> F64:
    burst: F64 = np.zeros(count)
    for at in draw.integers(0, max(count - 30, 1), 3):
        burst[at : at + 30] += 22 * np.hanning(30)[: count - at]
    return burst


def _smooth(values: F64, wide: int) -> F64:
    return np.convolve(np.pad(values, (wide - 1, 0), mode="edge"), np.ones(wide) / wide, mode="valid")
