"""The parts of the first query of the page Explore: they come with the page, so that nothing is asked for or moves."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from frontend.presenters.exploring.query_builder import WITH_NUMBER, BuilderQuery, NotShown, read_query
from spm.errors import BadQuery


@dataclass(frozen=True, slots=True)
class FirstParts:
    """A text, its parts as the API's query builder answers them, and which fields they need beside the usual ones."""

    query: BuilderQuery
    text: str
    fields: Sequence[str]


def read_parts(expr: str) -> FirstParts | None:
    """Read a text; None for what the builder cannot show, about which the page asks as after a change."""
    try:
        query = read_query(expr)
    except (BadQuery, NotShown):
        return None
    shown = {
        "window": query.function != "",
        "number": query.function == "quantile_over_time",
        "parameter": query.aggregation in WITH_NUMBER,
        "grouping": query.aggregation != "",
        "percentile": query.percentile is not None or query.metric.endswith("_bucket"),
    }
    answer: dict[str, Any] = {"expr": expr, "builder": asdict(query), "reason": ""}
    return FirstParts(query, orjson.dumps(answer).decode(), [name for name, is_shown in shown.items() if is_shown])
