"""The queries of the comparison in InfluxQL: a window of PromQL is a group by time whose edges are moved by 1 ms.

PromQL's window ends at its time and has it in; InfluxQL's begins at its time and has it in. Times are whole ms, so that
``[t - range + 1 ms, t + 1 ms)`` holds just the samples of ``(t - range, t]``.
"""

import json

from tests.bench.tsbs import Ask, Points
from tests.support.fleet import FIELDS


def statement(ask: Ask, start_ms: int) -> str:
    """Return a query over line protocol's measurement ``cpu``."""
    function = {"max": "max", "mean": "mean", "last": "last"}[ask.how]
    columns = ", ".join(f"{function}({name}) AS cpu_{name}" for name in FIELDS[: ask.fields])
    first, last = start_ms + (ask.start - ask.range_s) * 1000, start_ms + ask.end * 1000
    where = f"time > {first}ms AND time <= {last}ms"
    if ask.hosts is not None:
        hosts = " OR ".join(f"hostname = 'host_{host}'" for host in ask.hosts)
        where = f"({hosts}) AND {where}"
    by_host = ["hostname"] if ask.how in ("mean", "last") else []
    if ask.how != "last":
        offset_ms = (first + 1) % (ask.step * 1000)
        by_host.append(f"time({ask.step * 1000}ms, {offset_ms}ms)")
    return f"SELECT {columns} FROM cpu WHERE {where} GROUP BY {', '.join(by_host)}"


def table(body: bytes, start_ms: int, ask: Ask) -> Points:
    """Return an answer's points as PromQL would place them."""
    result = json.loads(body)["results"][0]
    if "error" in result:
        raise RuntimeError(f"a query was answered {result['error']}")
    points: Points = {}
    for series in result.get("series", []):
        host = series.get("tags", {}).get("hostname", "")
        for row in series["values"]:
            at = float(ask.end if ask.how == "last" else (row[0] - 1 - start_ms) // 1000 + ask.step)
            for name, value in zip(series["columns"][1:], row[1:], strict=True):
                if value is not None:
                    points.setdefault((name, host), {})[at] = value
    return points
