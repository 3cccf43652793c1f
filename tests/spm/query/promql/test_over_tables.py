"""The engine gives equal answers from tables and from memory: before a run, and after it from hourly rollup rows."""

from __future__ import annotations

import numpy as np
import pytest

from ingest.accept.stamper import Stamper
from ingest.protocols.influx.reader import parse
from ingest.writer import Writer
from rollups.run.driver import Driver
from rollups.run.local import LocalExecutor
from spm.clock import FakeClock
from spm.limits import HOUR_MS
from spm.query.fake import FakeStorage
from spm.query.promql.engine import Engine
from spm.query.reader import AppStorage
from spm.query.view.decoded_rows import PageCache
from spm.store.backends import open_backend
from spm.store.backends.base import Backend
from spm.store.keys import PlacementTable

APP, HOURS = 7, 4
DAY = 20_000 * 24 * HOUR_MS
QUESTIONS = [
    "cpu_busy",
    'cpu_busy{host!~"h1"} * 2',
    "sum by (dc) (rate(net_bytes[5m]))",
    "max_over_time(cpu_busy[1h])",
    "increase(net_bytes[2h])",
    "avg_over_time(cpu_busy[2h]) > 40",
    "count(last_over_time(cpu_busy[3h]))",
    "quantile(0.5, cpu_busy) or vector(1)",
]


def both(clock: FakeClock) -> tuple[Backend, FakeStorage]:
    """Return tables and a fake storage with equal samples."""
    backend, fake, rng = open_backend("memory://"), FakeStorage(), np.random.default_rng(3)
    lines: list[str] = []
    for host in range(3):
        ts = DAY + np.arange(60_000, HOURS * HOUR_MS + 1, 60_000) + host * 7
        busy, sent = rng.integers(0, 400, len(ts)) / 4, np.cumsum(rng.integers(0, 900, len(ts)))
        labels = {"host": f"h{host}", "dc": "ab"[host % 2]}
        fake.add("cpu_busy", labels, ts, busy).add("net_bytes", labels, ts, sent.astype(float))
        tags = ",".join(f"{name}={value}" for name, value in labels.items())
        lines += [f"cpu,{tags} busy={value} {t}" for t, value in zip(ts, busy, strict=True)]
        lines += [f"net,{tags} bytes={value} {t}" for t, value in zip(ts, sent, strict=True)]
    parsed = parse("\n".join(lines).encode(), now_ms=clock.now_ms(), precision="ms")
    envelope = Stamper(1, clock).stamp_message(app=APP, source="s", parsed=parsed, message_id=b"m" * 16)
    Writer(backend, PlacementTable()).write([envelope])
    return backend, fake


@pytest.mark.parametrize("rolled", [False, True], ids=["in the log", "rolled up"])
def test_tables_and_memory_give_equal_answers(rolled: bool) -> None:
    clock = FakeClock(DAY + HOURS * HOUR_MS + 1)
    backend, fake = both(clock)
    if rolled:
        clock.advance(48 * HOUR_MS)
        Driver(backend, clock).roll(LocalExecutor(backend), [APP], minor=False)
    storage = AppStorage(backend, APP, placement=PlacementTable(), clock=clock, cache=PageCache())
    for question in QUESTIONS:
        for step in (HOUR_MS, 437_000):
            query = (question, DAY + HOUR_MS, DAY + HOURS * HOUR_MS, step)
            result, expected = Engine(storage).range(*query), Engine(fake).range(*query)
            assert result.labels == expected.labels, question
            assert (result.present == expected.present).all(), question
            np.testing.assert_allclose(result.values[result.present], expected.values[expected.present], rtol=1e-12)
