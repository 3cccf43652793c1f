"""Draws percentiles as columns: of every group of series, over the step before each time, with their provenance.

As in a chart, at most ``CHART_SERIES_MAX`` lines are returned, and ``infos`` says how many there are. The limits of a
query hold: points by the steps, sketches by the storage, everything else by the budget.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from frontend.presenters.charts import steps_of
from frontend.queries import QuerySession
from spm.arrays import F64
from spm.limits import CHART_SERIES_MAX
from spm.query.promql.planning.planner import parse_selector
from spm.query.request.provenance import Provenance
from spm.query.rolled import percentiles

RANGE_MS = 3_600_000


def chart(session: QuerySession, now_ms: int, query: Mapping[str, Any]) -> tuple[dict[str, Any], Provenance]:
    """Read the percentiles ``q`` of what ``match`` selects, grouped by the labels ``by``."""
    matchers = parse_selector(query["match"])
    end_ms = query.get("end", now_ms)
    steps = steps_of(query.get("start", end_ms - RANGE_MS), end_ms, query.get("step"))
    ends = np.arange(steps.start_ms, steps.end_ms + 1, steps.step_ms, dtype=np.int64)
    qs, by = query["q"], query.get("by", ())
    result = percentiles.group_percentiles(
        session.storage, matchers, ends - steps.step_ms, ends, qs=qs, by=by, budget=session.budget()
    )
    lines: list[dict[str, Any]] = [
        {
            "labels": {**labels, "quantile": f"{q:g}"},
            "values": _json_values(row),
        }
        for group, labels in enumerate(result.labels)
        for q, row in zip(qs, (table[group] for table in result.values), strict=True)
    ]
    drawn = [line for line in lines if any(value is not None for value in line["values"])]
    infos = [*result.provenance.infos(), *session.storage.notes()]
    if len(drawn) > CHART_SERIES_MAX:
        infos.append(f"{len(drawn)} lines match; the first {CHART_SERIES_MAX} are drawn")
    answer = {
        "times": ends.tolist(),
        "step": steps.step_ms,
        "series": drawn[:CHART_SERIES_MAX],
        "infos": infos,
        "warnings": [*result.provenance.warnings(), *session.storage.damage()],
    }
    return answer, result.provenance


def _json_values(row: F64) -> list[float | None]:
    """Replace numbers that JSON cannot write by null."""
    values = row.astype(object)
    values[~np.isfinite(row)] = None
    json_values: list[float | None] = values.tolist()
    return json_values
