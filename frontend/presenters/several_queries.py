"""Draws several queries as one chart: all on the same steps, each series with a label that names its query.

A query that fails hinders no other: a warning says what is wrong with it. A formula is evaluated with its queries'
texts in it, and what is hidden is not drawn. Enter by ``draw_queries``.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from frontend.presenters.charts import Band, Columns, Drawing, draw, select_highest, steps_for
from frontend.presenters.exploring.formulas import expand_formulas
from frontend.queries import QuerySession
from spm.arrays import F64
from spm.errors import BadQuery, LimitExceeded, QueryFailed, QueryTimeout, QueryTooLarge
from spm.limits import CHART_SERIES_MAX
from spm.query.request.provenance import join_provenance

QUERY_LABEL = "__query__"
_OWN_FAULT = (BadQuery, LimitExceeded, QueryFailed, QueryTimeout, QueryTooLarge)  # of one query, not of the site
_Session = Callable[[], AbstractContextManager[QuerySession]]


@dataclass(frozen=True, slots=True)
class SeveralDrawn:
    """A chart of several queries: what is drawn, and the expressions of those that did not fail.

    ``texts`` has those that are drawn by their names, with variables, and formulas with their queries in them.
    """

    drawing: Drawing
    exprs: Sequence[str]
    texts: Mapping[str, str]


def draw_queries(open_session: _Session, now_ms: int, query: Mapping[str, Any]) -> SeveralDrawn:
    """Draw ``queries``, a list of {name, expr}, each admitted by itself. If all fail, the first failure is raised.

    Those with ``formula`` use others by their names; those with ``hidden`` are there for formulas alone.
    """
    shown = [each["name"] for each in query["queries"] if not each.get("hidden")]
    expanded = expand_formulas(query["queries"])
    texts = {name: text for name in shown if not isinstance(text := expanded[name], BadQuery)}
    common = {name: query[name] for name in ("start", "end", "top", "since") if name in query}
    with open_session() as session:
        step_ms = steps_for(session, now_ms, query, list(texts.values())).step_ms
    drawings: dict[str, Drawing] = {}
    failures: dict[str, Exception] = {name: wrong for name in shown if isinstance(wrong := expanded[name], BadQuery)}
    for name, text in texts.items():
        try:
            with open_session() as session:
                drawings[name] = draw(session, now_ms, {**common, "expr": text, "step": step_ms})
        except _OWN_FAULT as error:
            failures[name] = error
    if not drawings:
        raise next(iter(failures.values()))
    warnings = [f"{name}: {error}" for name, error in failures.items()]
    most = min(query.get("top", CHART_SERIES_MAX), CHART_SERIES_MAX)
    drawing = _joined(drawings, warnings, most)
    if query.get("pixels"):
        drawing = replace(drawing, columns=drawing.columns.thinned(query["pixels"]))
    return SeveralDrawn(drawing, [each.expr for each in drawings.values()], texts)


def _joined(drawings: Mapping[str, Drawing], warnings: Sequence[str], most: int) -> Drawing:
    parts = list(drawings.values())
    columns = _joined_columns({name: each.columns for name, each in drawings.items()}, most)
    return Drawing(
        parts[0].expr,
        parts[0].step_ms,
        columns,
        list(dict.fromkeys(text for each in parts for text in each.infos)),
        [*warnings, *dict.fromkeys(text for each in parts for text in each.warnings)],
        join_provenance(each.provenance for each in parts),
        shows_extremes=False,
    )


def _joined_columns(parts: Mapping[str, Columns], most: int) -> Columns:
    """Put the lines of all below each other, and keep the highest ones as lines."""
    first = next(iter(parts.values()))
    labels = [{QUERY_LABEL: name, **each} for name, part in parts.items() for each in part.labels]
    values = np.concatenate([part.values for part in parts.values()])
    drawn, others = select_highest(values, np.arange(len(values)), most)
    bands = [part.rest for part in parts.values() if part.rest]
    rest = None
    if bands or len(others):
        low = _extreme(np.fmin, [values[others], *(band.low[None] for band in bands)])
        high = _extreme(np.fmax, [values[others], *(band.high[None] for band in bands)])
        rest = Band(len(others) + sum(band.count for band in bands), low, high)
    return Columns(first.times, first.step_ms, [labels[row] for row in drawn.tolist()], values[drawn], rest)


def _extreme(of: np.ufunc, parts: Sequence[F64]) -> F64:
    result: F64 = of.reduce(np.concatenate(parts), axis=0)
    return result
