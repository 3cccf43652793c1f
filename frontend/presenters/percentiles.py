"""Percentiles as columns: of every group of series, over the step before each time, with what they rest on.

Like a chart, at most ``CHART_SERIES_MAX`` lines are given: ``infos`` says how many there are. The limits of a query
hold: points by the steps, sketches by the storage, everything else by the budget.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from frontend.presenters.steps import steps_of
from spm.arrays import F64
from spm.limits import CHART_SERIES_MAX
from spm.query.promql.planning.planner import parse_selector
from spm.query.reader import AppStorage
from spm.query.request.budget import Budget
from spm.query.request.provenance import Basis
from spm.query.rolled import percentiles

RANGE_MS = 3_600_000


def chart(storage: AppStorage, budget: Budget, now_ms: int, asked: Mapping[str, Any]) -> tuple[dict[str, Any], Basis]:
    """The percentiles ``q`` of what ``match`` selects, by the labels ``by``; and what they rest on."""
    matchers = parse_selector(asked["match"])
    end_ms = asked.get("end", now_ms)
    steps = steps_of(asked.get("start", end_ms - RANGE_MS), end_ms, asked.get("step"))
    ends = np.arange(steps.start_ms, steps.end_ms + 1, steps.step_ms, dtype=np.int64)
    qs, by = asked["q"], asked.get("by", ())
    found = percentiles.of_groups(storage, matchers, ends - steps.step_ms, ends, qs=qs, by=by, budget=budget)
    lines: list[dict[str, Any]] = [
        {
            "labels": {**labels, "quantile": f"{q:g}"},
            "values": _shown(row),
        }
        for group, labels in enumerate(found.labels)
        for q, row in zip(qs, (table[group] for table in found.values), strict=True)
    ]
    drawn = [line for line in lines if any(value is not None for value in line["values"])]
    infos = [*found.basis.infos(), *storage.notes()]
    if len(drawn) > CHART_SERIES_MAX:
        infos.append(f"{len(drawn)} lines are found; the first {CHART_SERIES_MAX} are drawn")
    answer = {
        "times": ends.tolist(),
        "step": steps.step_ms,
        "series": drawn[:CHART_SERIES_MAX],
        "infos": infos,
        "warnings": found.basis.warnings(),
    }
    return answer, found.basis


def _shown(row: F64) -> list[float | None]:
    """Null where there is no number that JSON can say."""
    values = row.astype(object)
    values[~np.isfinite(row)] = None
    shown: list[float | None] = values.tolist()
    return shown
