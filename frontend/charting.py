"""A chart as columns: the engine's answer to an expression over round steps, with what it rests on and lacks.

More than ``CHART_SERIES_MAX`` lines cannot be told apart, nor drawn quickly: the first ones are given, and ``infos``
says how many there are.
"""

from collections.abc import Mapping
from typing import Any

from frontend.hosts import columns
from frontend.timing import filled, steps_of
from spm.limits import CHART_SERIES_MAX
from spm.query.promql.engine import Engine

RANGE_MS = 3_600_000


def chart(engine: Engine, now_ms: int, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Evaluate ``expr`` from ``start`` (an hour before the end) to ``end`` (now), at ``step`` or a round one."""
    end_ms = asked.get("end", now_ms)
    steps = steps_of(asked.get("start", end_ms - RANGE_MS), end_ms, asked.get("step"))
    found = engine.range(filled(asked["expr"], steps.step_ms), steps.start_ms, steps.end_ms, steps.step_ms)
    lines = zip(found.labels, columns(found), strict=True)
    series = [{"labels": labels, "values": line.values} for labels, line in lines if any_value(line.values)]
    infos, warnings = list(found.notes), list(found.warnings)
    if len(series) > CHART_SERIES_MAX:
        infos.append(f"{len(series)} series match; the first {CHART_SERIES_MAX} are drawn")
    return {
        "times": found.times.tolist(),
        "step": steps.step_ms,
        "series": series[:CHART_SERIES_MAX],
        "infos": infos,
        "warnings": warnings,
    }


def any_value(values: list[float | None]) -> bool:
    """Whether there is anything to draw."""
    return any(value is not None for value in values)
