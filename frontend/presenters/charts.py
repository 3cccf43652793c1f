"""Draws an expression as columns: the engine's answer over round steps, with its provenance and warnings.

A reader cannot tell more than ``CHART_SERIES_MAX`` lines apart, and they take long to draw: only the first ones are
returned, and ``infos`` says how many there are.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from frontend.presenters.hosts import series_points
from frontend.presenters.steps import fill_window, steps_of
from spm.limits import CHART_SERIES_MAX
from spm.query.promql.engine import Engine
from spm.query.request.provenance import Provenance

RANGE_MS = 3_600_000


def chart(engine: Engine, now_ms: int, query: Mapping[str, Any]) -> tuple[dict[str, Any], Provenance]:
    """Evaluate ``expr`` from ``start`` (an hour before the end) to ``end`` (now), at ``step`` or a round one."""
    end_ms = query.get("end", now_ms)
    steps = steps_of(query.get("start", end_ms - RANGE_MS), end_ms, query.get("step"))
    result = engine.range(fill_window(query["expr"], steps.step_ms), steps.start_ms, steps.end_ms, steps.step_ms)
    rows = np.flatnonzero(result.present.any(axis=1))
    drawn = rows[:CHART_SERIES_MAX]
    lines = series_points(result.times, result.values[drawn], result.present[drawn])
    names = [result.labels[row] for row in drawn.tolist()]
    infos, warnings = list(result.notes), list(result.warnings)
    if len(rows) > CHART_SERIES_MAX:
        infos.append(f"{len(rows)} series match; the first {CHART_SERIES_MAX} are drawn")
    answer = {
        "times": result.times.tolist(),
        "step": steps.step_ms,
        "series": [{"labels": labels, "values": line.values} for labels, line in zip(names, lines, strict=True)],
        "infos": infos,
        "warnings": warnings,
    }
    return answer, result.provenance
