"""A chart as columns: the engine's answer to an expression over round steps, with what it rests on and lacks.

More than ``CHART_SERIES_MAX`` lines cannot be told apart, nor drawn quickly: the first ones are given, and ``infos``
says how many there are.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from frontend.presenters.hosts import columns
from frontend.presenters.steps import filled, steps_of
from spm.limits import CHART_SERIES_MAX
from spm.query.promql.engine import Engine
from spm.query.request.provenance import Basis

RANGE_MS = 3_600_000


def chart(engine: Engine, now_ms: int, asked: Mapping[str, Any]) -> tuple[dict[str, Any], Basis]:
    """``expr`` from ``start`` (an hour before the end) to ``end`` (now), at ``step`` or a round one; and its basis."""
    end_ms = asked.get("end", now_ms)
    steps = steps_of(asked.get("start", end_ms - RANGE_MS), end_ms, asked.get("step"))
    found = engine.range(filled(asked["expr"], steps.step_ms), steps.start_ms, steps.end_ms, steps.step_ms)
    shown = np.flatnonzero(found.present.any(axis=1))
    drawn = shown[:CHART_SERIES_MAX]
    lines = columns(found.times, found.values[drawn], found.present[drawn])
    names = [found.labels[row] for row in drawn.tolist()]
    infos, warnings = list(found.notes), list(found.warnings)
    if len(shown) > CHART_SERIES_MAX:
        infos.append(f"{len(shown)} series match; the first {CHART_SERIES_MAX} are drawn")
    answer = {
        "times": found.times.tolist(),
        "step": steps.step_ms,
        "series": [{"labels": labels, "values": line.values} for labels, line in zip(names, lines, strict=True)],
        "infos": infos,
        "warnings": warnings,
    }
    return answer, found.basis
