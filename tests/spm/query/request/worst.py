"""`python -m tests.spm.query.request.worst SHARE`: the worst queries that a share of the limits allows, and the memory
each takes.

Each runs over so many series that one vector of them just fits, then over fewer and fewer, so that the last steps of a
query with several vectors are measured near the limit as well. Prints a line of JSON for each: the expression, the
series, the peak that the budget counted, the peak growth of the process, and the reason of a refusal. Runs in a
process of its own, so that no other memory is counted.
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
PARTS = (1.0, 0.8, 0.65, 0.5, 0.4)  # of the series whose vector just fits
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
    """The peak of this process in bytes since `forget`."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) * 1024


def forget() -> int:
    """Return unused memory to the system and reset the peak; returns the present bytes."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return grown()


def main(share: float) -> None:
    """Run all the worst queries."""
    most = QueryLimits()
    allowed = dataclasses.replace(
        most,
        cells=int(most.cells * share),
        bytes=int(most.bytes * share),
        samples=int(most.samples * share),
        shown=int(most.shown * share),
        timeout_s=600.0,
    )
    # So many that one vector, its samples and its result just fit; with operands they do not.
    most_series = allowed.bytes // (STEPS * (SAMPLE_BYTES + CELL_BYTES * (1 + WORKING_COPIES)) + SERIES_BYTES)
    few = FakeStorage().add("m", {"n": "1", "g": "1"}, TIMES[:10], np.arange(10.0))
    for expr in WORST:
        prometheus.query_body(Engine(few).range(expr, START, START + 9_000, 1_000))  # compiles the kernels
    for part in PARTS:
        series = int(most_series * part)
        storage = _storage(series)
        for expr in WORST:
            print(json.dumps({"expr": expr, "series": series} | _result_of(expr, storage, allowed)), flush=True)


def _storage(series: int) -> FakeStorage:
    storage = FakeStorage()
    for number in range(series):
        storage.add("m", {"n": str(number), "g": str(number % 7)}, TIMES, np.arange(STEPS) % 97.0 + number)
    return storage


def _result_of(expr: str, storage: FakeStorage, allowed: QueryLimits) -> dict[str, Any]:
    budget, before, refused = Budget(allowed, SystemClock()), forget(), ""
    try:
        result = Engine(storage, budget=budget).range(expr, START, START + (STEPS - 1) * 1_000, 1_000)
        budget.check_points(prometheus.points_of(result))
        prometheus.query_body(result)
    except QueryTooLarge as error:
        refused = str(error)
    return {"counted": budget.usage.bytes_peak, "grown": grown() - before, "refused": refused}


if __name__ == "__main__":
    main(float(sys.argv[1]))
