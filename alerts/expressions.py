"""The values of a rule's expression at one time: one value per series. Only this module calls the query engine.

``Querier`` is the type of the question that ``evaluate`` and the form ask; ``query_engine`` answers it from the app's
own data. A person who tries an expression waits for a place among the queries of the organisation
(``with_admission``); rules do not wait for people.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from django.conf import settings

from spm import limits, query
from spm.errors import BadQuery, LimitExceeded
from spm.query.promql.engine import Engine
from spm.query.request.admission import shared_admission


@dataclass(frozen=True, slots=True)
class SeriesValue:
    """One series of the answer and its value."""

    labels: Mapping[str, str]
    value: float


Querier = Callable[[int, str, int], Sequence[SeriesValue]]  # app, expression, time → values


def query_engine(app: int, expr: str, at_ms: int) -> Sequence[SeriesValue]:
    """Evaluate the expression for the app at one time; raises `SpmError` if the engine refuses it."""
    query.configure(settings.SPM_STORE_URL)
    result = Engine(query.storage_for(app)).instant(expr, at_ms)
    if result.kind not in ("vector", "scalar"):
        raise BadQuery(f"a rule needs numbers, this expression gives a {result.kind}")
    if len(result.labels) > limits.RULE_SERIES_MAX:
        raise LimitExceeded(
            "the expression gives too many series",
            got=len(result.labels),
            wanted=f"at most {limits.RULE_SERIES_MAX}",
            remedy="Aggregate with sum by (…) or max by (…).",
        )
    rows = zip(result.labels, result.values[:, -1], result.present[:, -1], strict=True)
    return [SeriesValue(labels, float(value)) for labels, value, present in rows if present]


def with_admission(organisation: int, querier: Querier) -> Querier:
    """Wrap a querier so that each query first waits for a place of its organisation."""

    def query_when_admitted(app: int, expr: str, at_ms: int) -> Sequence[SeriesValue]:
        with shared_admission(settings.SPM_DATA / "turns").admit(organisation):
            return querier(app, expr, at_ms)

    return query_when_admitted


def fingerprint(labels: Mapping[str, str]) -> str:
    """Return a short, permanent name for a label set."""
    text = json.dumps(sorted(labels.items()), ensure_ascii=False, separators=(",", ":"))
    return blake2b(text.encode(), digest_size=16).hexdigest()
