"""`python -m tests.spm.query.request.worst SHARE`: the worst queries that a share of the limits allows, and the memory
each takes.

Each is asked of so many series that one vector of them just fits, then of fewer and fewer, so that what a query with
several vectors does at last is also seen near the limit. Prints a line of JSON for each: the expression, the series,
what the budget counted at most, by how much the process grew at most, and why it was refused, if it was. Runs in a
process of its own, so that nothing else's memory is counted.
"""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from spm.clock import SystemClock
from spm.errors import QueryTooLarge
from spm.query.fake import FakeStorage
from spm.query.formats import prometheus
from spm.query.promql.engine import Engine
from spm.query.request.budget import CELL_BYTES, SAMPLE_BYTES, SERIES_BYTES, WORKING_COPIES, Budget, QueryLimits

STEPS = 5_000
START = 1_700_000_000_000
TIMES = START + np.arange(STEPS) * 1_000
PARTS = (1.0, 0.8, 0.65, 0.5, 0.4)  # of the series of which one vector just fits
WORST = (
    "m",
    "m + m",
    "m * on (n) group_left () max by (n) (m)",
    "(m + 1) / (m + 2) > (m - 3)",
    "m and m unless n",
    "topk(5, m)",
    "sort(quantile by (g) (0.9, m))",
    "sum by (n) (rate(m[1m]))",
    "quantile_over_time(0.9, m[1m])",
    "max_over_time(rate(m[1m])[2m:1s])",
    "sum_over_time((m % 2 > 0)[1m:1s])",
    "stddev by (n) (m)",
    "quantile by (n) (0.5, m)",
    "m > on (n) group_left () (max by (n) (m) - 1)",
    "m + on (n) fill (0) (m + 1)",
    'label_replace(m, "x", "$1", "n", "(.*)")',
    'count_values("v", m)',
    "m or (m * 2) or (m * 3)",
    "abs(-m) ^ 2",
)


def grown() -> int:
    """Bytes of this process at most since `forget`."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) * 1024


def forget() -> int:
    """What is not used goes back to the system, and the highest mark with it; bytes now."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return grown()


def main(share: float) -> None:
    """Ask all of them."""
    most = QueryLimits()
    allowed = dataclasses.replace(
        most,
        cells=int(most.cells * share),
        bytes=int(most.bytes * share),
        samples=int(most.samples * share),
        shown=int(most.shown * share),
        timeout_s=600.0,
    )
    # So many that a vector alone, its samples and what is made of it just fit; with operands it does not.
    most_series = allowed.bytes // (STEPS * (SAMPLE_BYTES + CELL_BYTES * (1 + WORKING_COPIES)) + SERIES_BYTES)
    few = FakeStorage().add("m", {"n": "1", "g": "1"}, TIMES[:10], np.arange(10.0))
    for expr in WORST:
        prometheus.query_body(Engine(few).range(expr, START, START + 9_000, 1_000))  # compiles what is not compiled yet
    for part in PARTS:
        series = int(most_series * part)
        storage = _storage(series)
        for expr in WORST:
            print(json.dumps({"expr": expr, "series": series} | _asked(expr, storage, allowed)), flush=True)


def _storage(series: int) -> FakeStorage:
    storage = FakeStorage()
    for number in range(series):
        storage.add("m", {"n": str(number), "g": str(number % 7)}, TIMES, np.arange(STEPS) % 97.0 + number)
    return storage


def _asked(expr: str, storage: FakeStorage, allowed: QueryLimits) -> dict[str, Any]:
    budget, before, refused = Budget(allowed, SystemClock()), forget(), ""
    try:
        found = Engine(storage, budget=budget).range(expr, START, START + (STEPS - 1) * 1_000, 1_000)
        budget.shown(prometheus.points_of(found))
        prometheus.query_body(found)
    except QueryTooLarge as error:
        refused = str(error)
    return {"counted": budget.usage.bytes_peak, "grown": grown() - before, "refused": refused}


if __name__ == "__main__":
    main(float(sys.argv[1]))
