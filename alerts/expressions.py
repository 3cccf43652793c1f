"""The values of rules' expressions. Only this module calls the query engine.

A ``Session`` evaluates the expressions of an app's rules over many steps: each distinct expression once, with the
samples that several of them select read once. ``query_engine`` evaluates one expression at one time, for the form. A
person who tries an expression waits for a place among the queries of the organisation (``admitted``); rules do not
wait for people.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import numpy as np
from django.conf import settings

from alerts.judging.answers import Answer, Read, join
from alerts.judging.knowledge.sight import KeptKnowledge
from alerts.judging.versions import Steps
from spm import limits, query
from spm.errors import BadQuery, LimitExceeded, QueryFailed, QueryTimeout, QueryTooLarge
from spm.query.promql.engine import LOOKBACK_MS, Engine
from spm.query.promql.planning.planner import depends_on_query, parse
from spm.query.promql.planning.read_range import read_range
from spm.query.request.admission import shared_admission
from spm.query.shared_reads import SharedReads
from spm.query.storage import Storage


@dataclass(frozen=True, slots=True)
class SeriesValue:
    """One series of the answer and its value."""

    labels: Mapping[str, str]
    value: float


Querier = Callable[[int, str, int], Sequence[SeriesValue]]  # app, expression, time → values


def query_engine(app: int, expr: str, at_ms: int) -> Sequence[SeriesValue]:
    """Evaluate the expression for the app at one time; raises `SpmError` if the engine or judging refuses it."""
    answer = evaluate(_storage(app), expr, Steps(at_ms, at_ms, limits.RULE_PERIOD_MS))
    rows = zip(answer.labels, answer.values[:, 0], answer.present[:, 0], strict=True)
    return [SeriesValue(labels, float(value)) for labels, value, present in rows if present]


def read_points(
    app: int, expr: str, labels: Mapping[str, str], steps: Steps, known: KeptKnowledge | None = None
) -> list[float | None]:
    """Return the values of one series of an expression at all steps, to be drawn; None where it has none.

    ``known``: what judging knew; by default what is known now. Raises ``SpmError``.
    """
    answer = evaluate(_storage_at(app, known), expr, steps)
    for row, each in enumerate(answer.labels):
        if dict(each) == dict(labels):
            finite = answer.present[row] & np.isfinite(answer.values[row])
            return [float(value) if ok else None for value, ok in zip(answer.values[row], finite, strict=True)]
    return [None] * len(steps)


class Session:
    """Evaluates expressions over a storage, each at some steps once.

    A step at which an expression cannot be evaluated becomes an error of the answer.
    """

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._answers: dict[tuple[str, Steps], Answer] = {}

    def __call__(self, expr: str, steps: Steps, /) -> Answer:
        key = expr, steps
        if key not in self._answers:
            self._answers[key] = _evaluate_parts(self.storage, expr, steps)
        return self._answers[key]


def session_as_known(app: int, known: KeptKnowledge | None) -> Read:
    """Return what evaluates expressions of the app as judging knew its data, by default as it is known now."""
    return Session(SharedReads(_storage_at(app, known), limits.QUERY_BYTES_MAX))


def open_storage(app: int) -> Storage:
    """Return the app's data for a chunk of steps, with samples that several expressions select read once."""
    return SharedReads(_storage(app), limits.QUERY_BYTES_MAX)


def evaluator_of(storage: Storage) -> Read:
    """Return what evaluates expressions over a storage that may change between two of them."""
    return lambda expr, steps: _evaluate_parts(storage, expr, steps)


def check_expression(expr: str) -> None:
    """Refuse an expression that no rule may have: one that does not parse, or whose value at a step depends on more.

    A rule is judged step by step and again when late data comes: its value at a step must rest on the samples up to
    that step, and not on the range of the query.
    """
    plan = parse(expr)
    if depends_on_query(expr):
        raise BadQuery("a rule cannot use @ start(), @ end(), start(), end(), step() or range(): it has no range")
    reach = read_range(expr, plan, LOOKBACK_MS)
    if reach is not None and reach.after_ms > 0:
        raise BadQuery("a rule cannot read samples after the time that it judges; remove the negative offset")


def evaluate(storage: Storage, expr: str, steps: Steps) -> Answer:
    """Evaluate the expression at all steps; raises ``SpmError`` if that fails at any of them."""
    check_expression(expr)
    result = Engine(storage).range(expr, steps.first_ms, steps.last_ms, steps.period_ms)
    if len(result.labels) > limits.RULE_SERIES_MAX:
        raise LimitExceeded(
            "the expression gives too many series",
            got=len(result.labels),
            wanted=f"at most {limits.RULE_SERIES_MAX}",
            remedy="Aggregate with sum by (…) or max by (…).",
        )
    return Answer(result.labels, result.values, result.present)


def _evaluate_parts(storage: Storage, expr: str, steps: Steps) -> Answer:
    """Evaluate at all steps at once; if that fails, in halves, so that the error stays with the steps that have it."""
    try:
        return evaluate(storage, expr, steps)
    except BadQuery as refusal:
        error: Exception = refusal
        if _is_static(expr):
            return Answer.failed(steps, str(refusal))
    except (LimitExceeded, QueryFailed, QueryTooLarge, QueryTimeout) as refusal:
        error = refusal
    if len(steps) == 1:
        return Answer.failed(steps, str(error))
    middle = steps.at_ms(len(steps) // 2)
    halves = replace(steps, last_ms=middle - steps.period_ms), replace(steps, first_ms=middle)
    return join([(half, _evaluate_parts(storage, expr, half)) for half in halves], steps)


def _is_static(expr: str) -> bool:
    """Whether the expression is refused whatever the data is."""
    try:
        check_expression(expr)
    except BadQuery:
        return True
    return False


def _storage(app: int) -> Storage:
    query.configure(settings.SPM_STORE_URL)
    return query.storage_for(app)


def _storage_at(app: int, known: KeptKnowledge | None) -> Storage:
    """Return the app's data as it was known at some moment."""
    query.configure(settings.SPM_STORE_URL)
    storage = query.storage_for(app)
    if known is None:
        return storage
    return storage.known_at(storage.restore_knowledge(known.vector, known.retractions))


def admitted(organisation: int) -> AbstractContextManager[None]:
    """Hold a place among the organisation's queries; raises ``QueryRefused`` where none becomes free in time."""
    return shared_admission(settings.SPM_DATA / "turns").admit(organisation)


def with_admission(organisation: int, querier: Querier) -> Querier:
    """Wrap a querier so that each query first waits for a place of its organisation."""

    def query_when_admitted(app: int, expr: str, at_ms: int) -> Sequence[SeriesValue]:
        with admitted(organisation):
            return querier(app, expr, at_ms)

    return query_when_admitted
