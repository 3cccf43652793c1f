"""What an expression says now: one reading per series. The only place where the watchman meets the query engine.

``Ask`` is the question as ``evaluate`` and the form put it; ``ask_engine`` answers it from the app's own data. A person
who tries an expression asks ``in_turn`` with everybody else of the organisation; rules do not wait for people.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from django.conf import settings

from spm import limits, query
from spm.errors import BadQuery, LimitExceeded
from spm.query.promql.engine import Engine
from spm.query.request.admission import shared


@dataclass(frozen=True, slots=True)
class Reading:
    """A series of the answer and its value."""

    labels: Mapping[str, str]
    value: float


Ask = Callable[[int, str, int], Sequence[Reading]]  # app, expression, time → readings


def ask_engine(app: int, expr: str, at_ms: int) -> Sequence[Reading]:
    """The instant value of the expression for every series of the app's answer."""
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
    return [Reading(labels, float(value)) for labels, value, present in rows if present]


def in_turn(organisation: int, ask: Ask) -> Ask:
    """The same question, asked when it is the organisation's turn."""

    def waiting(app: int, expr: str, at_ms: int) -> Sequence[Reading]:
        with shared(settings.SPM_DATA / "turns").take(organisation):
            return ask(app, expr, at_ms)

    return waiting


def fingerprint(labels: Mapping[str, str]) -> str:
    """A short name for a label set, the same for ever."""
    text = json.dumps(sorted(labels.items()), ensure_ascii=False, separators=(",", ":"))
    return blake2b(text.encode(), digest_size=16).hexdigest()
