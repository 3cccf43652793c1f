"""Reads the points of a mail's chart and a notification's texts, once: they are stored before it is handed over.

The chart is of the notification's first line, from an hour before the alert began, as judging knew the samples when the
notification was written: what came or was retracted since then is not in it. Without data, when the store does not
answer in time, or when what was known has expired, the mail has no chart. No database is used, so this may run beside
hand-overs.
"""

import logging
import math
from collections.abc import Mapping
from typing import Any

from alerts import newest_texts
from alerts.expressions import read_points
from alerts.judging.knowledge.sight import KeptKnowledge
from alerts.judging.versions import Steps
from alerts.telling import limits
from spm.errors import SpmError

log = logging.getLogger("spm.alerts")


def read_chart(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the chart of a notification as ``ChartData`` takes it; empty if there is none."""
    line = body["lines"][0]
    if not line["rule"] or line.get("aspect", "value") == "error":
        return {}
    try:
        return _read(line, body["at_ms"], _knowledge_of(body))
    except SpmError as error:
        log.info("notification %s has no chart: %s", body["key"], error)
        return {}


def read_texts(body: Mapping[str, Any]) -> newest_texts.Texts:
    """Return the annotations of a notification that rest on data, as judging knew it."""
    first, known = body["lines"][0]["app"], _knowledge_of(body)
    mine = [line for line in body["lines"] if line["app"] == first]
    others = [line for line in body["lines"] if line["app"] != first]  # what was known is kept of the first app
    return newest_texts.read_texts(mine, known) | newest_texts.read_texts(others)


def _knowledge_of(body: Mapping[str, Any]) -> KeptKnowledge | None:
    """Return what judging knew when the notification was written; None if that was not kept."""
    columns = body.get("known")
    return columns and KeptKnowledge(bytes.fromhex(columns["vector"]), tuple(columns["retractions"]))


def _read(line: Mapping[str, Any], at_ms: int, knowledge: KeptKnowledge | None) -> dict[str, Any]:
    to_ms = at_ms if line["end_ms"] is None else min(at_ms, line["end_ms"] + limits.CHART_AROUND_MS // 4)
    from_ms = max(line["start_ms"] - limits.CHART_AROUND_MS, to_ms - limits.CHART_SPAN_MS_MAX)
    step_ms = math.ceil((to_ms - from_ms) / limits.CHART_POINTS / limits.CHART_STEP_MS) * limits.CHART_STEP_MS
    last_ms = to_ms // step_ms * step_ms
    steps = Steps(last_ms - (last_ms - from_ms) // step_ms * step_ms, last_ms, step_ms)
    values = read_points(line["app"], line["expr"], line["labels"], steps, knowledge)
    if not any(value is not None for value in values):
        return {}
    threshold = float(line["threshold"]) if line["comparator"] and line["threshold"] else None
    return {
        "from_ms": steps.first_ms,
        "step_ms": step_ms,
        "values": values,
        "threshold": threshold if threshold is None or math.isfinite(threshold) else None,
        "start_ms": line["start_ms"],
        "end_ms": line["end_ms"],
    }
