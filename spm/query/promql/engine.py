"""Evaluates a query: text, times and a storage in, numbers per series and step out.

1. The text becomes a plan (`parse`). 2. `_Evaluation` walks the plan once, each node computing all steps of all series.
3. Selectors read the storage, through hourly aggregates where these are exact (`hours`), each distinct stretch once.
4. Names marked for removal are removed, and the result is put in order. Limits are checked where things grow: series
and samples when read, cells when computed, time between nodes. Enter by `Engine`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from spm import limits
from spm.clock import Clock, SystemClock
from spm.errors import BadQuery, QueryTimeout, QueryTooLarge
from spm.query import percentiles
from spm.query.basis import Basis, joined
from spm.query.promql import binary, functions, hours, plan, windows
from spm.query.promql.aggregate import aggregate
from spm.query.promql.labels import Labels
from spm.query.promql.parse import parse
from spm.query.promql.vector import Vector, finished, named
from spm.query.promql.windows import Steps
from spm.query.select import HourBatch, Matcher, SeriesBatch, Storage

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

LOOKBACK_MS = 300_000  # how far back an instant selector looks, as Prometheus does by default


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """What one query may use."""

    series: int = limits.QUERY_SERIES_MAX
    samples: int = limits.QUERY_SAMPLES_MAX
    cells: int = limits.QUERY_CELLS_MAX
    points: int = limits.QUERY_POINTS_MAX
    timeout_s: float = limits.QUERY_TIMEOUT_S


@dataclass(frozen=True, slots=True)
class Result:
    """What a query found. `kind` is scalar, vector, matrix or string."""

    kind: str
    times: I64  # [T] in ms
    labels: list[Labels]  # [S]
    values: F64  # [S, T]; means nothing where not present
    present: Bool  # [S, T]
    notes: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    samples: SeriesBatch | None = None  # instead of values, when an instant query asks for a range of samples
    text: str = ""  # instead of values, of a string


class Engine:
    """Answers PromQL from one storage."""

    def __init__(self, storage: Storage, limits: QueryLimits | None = None, clock: Clock | None = None) -> None:
        self._storage = storage
        self._limits = limits or QueryLimits()
        self._clock = clock or SystemClock()

    def instant(self, expr: str, at_ms: int) -> Result:
        """The value of the expression at one time."""
        found = parse(expr)
        evaluation = self._evaluation(Steps(at_ms, 0, 1))
        if isinstance(found, plan.Text):
            return _nothing("string", evaluation.times, text=found.value)
        if isinstance(found, plan.Window):
            return evaluation.samples(found)
        if isinstance(found, plan.SCALARS):
            return evaluation.result("scalar", evaluation.constant(evaluation.scalar(found)))
        return evaluation.result("vector", evaluation.vector(found))

    def range(self, expr: str, start_ms: int, end_ms: int, step_ms: int) -> Result:
        """The value of the expression at each step from start to end."""
        steps = self._steps(start_ms, end_ms, step_ms)
        found = parse(expr)
        if isinstance(found, plan.Text | plan.Window):
            kind = "string" if isinstance(found, plan.Text) else "range vector"
            raise BadQuery(f'invalid expression type "{kind}" for range query, must be Scalar or instant Vector')
        evaluation = self._evaluation(steps)
        if isinstance(found, plan.SCALARS):
            return evaluation.result("matrix", evaluation.constant(evaluation.scalar(found)))
        return evaluation.result("matrix", evaluation.vector(found))

    def _steps(self, start_ms: int, end_ms: int, step_ms: int) -> Steps:
        if step_ms <= 0:
            raise BadQuery("zero or negative query resolution step widths are not accepted. Try a positive integer")
        if end_ms < start_ms:
            raise BadQuery("end timestamp must not be before start time")
        count = (end_ms - start_ms) // step_ms + 1
        if count > self._limits.points:
            raise BadQuery(
                f"exceeded maximum resolution of {self._limits.points} points per timeseries. "
                "Try decreasing the query resolution (?step=XX)"
            )
        return Steps(start_ms, step_ms, count)

    def _evaluation(self, steps: Steps) -> _Evaluation:
        return _Evaluation(self._storage, self._limits, self._clock, steps)


class _Evaluation:
    """One query at its steps: what has been read so far, and how much may still be."""

    def __init__(self, storage: Storage, limits: QueryLimits, clock: Clock, steps: Steps) -> None:
        self._storage, self._limits, self._clock, self._steps = storage, limits, clock, steps
        self.times: I64 = steps.first_ms + np.arange(steps.count, dtype=np.int64) * steps.step_ms
        self._deadline = clock.monotonic() + limits.timeout_s
        self._samples_read = 0
        self._read: dict[tuple[tuple[Matcher, ...], int, int], SeriesBatch] = {}
        self._bases: list[Basis] = []  # of what is read once only
        self._cells_read: dict[tuple[tuple[Matcher, ...], bytes, tuple[str, ...]], HourBatch] = {}

    # --- results ---

    def result(self, kind: str, vector: Vector) -> Result:
        """The answer, in the order of labels when it is a matrix (a vector keeps the order it was made in)."""
        shown = finished(vector)
        rows = np.arange(len(shown.labels))
        if kind == "matrix" and len(rows) > 1:
            keys = [sorted(labels.items()) for labels in shown.labels]
            rows = np.array(sorted(range(len(keys)), key=keys.__getitem__))
            shown = Vector([shown.labels[row] for row in rows], shown.values[rows], shown.present[rows], rows < 0)
        return self._explained(Result(kind, self.times, shown.labels, shown.values, shown.present))

    def samples(self, window: plan.Window) -> Result:
        """The samples themselves, as an instant query for a range asks."""
        steps = self._placed(window.selector)
        batch = self._select(window.selector.matchers, steps.first_ms - window.range_ms, steps.first_ms)
        found = dataclasses.replace(_nothing("matrix", self.times), samples=windows.without_stale(batch))
        return self._explained(found)

    def constant(self, values: F64) -> Vector:
        """A scalar as an element without labels."""
        return named([{}], values[np.newaxis, :], np.ones((1, len(values)), np.bool_), nameless=False)

    def _explained(self, result: Result) -> Result:
        """The answer, with what everything that was read for it rests on."""
        samples = [batch.basis for batch in self._read.values()]
        basis = joined([*samples, *(batch.basis for batch in self._cells_read.values()), *self._bases])
        return dataclasses.replace(result, notes=[*basis.infos(), *self._storage.notes()], warnings=basis.warnings())

    # --- scalars ---

    def scalar(self, node: plan.ScalarNode) -> F64:
        """One number per step."""
        match node:
            case plan.Number(value):
                return np.full(self._steps.count, value)
            case plan.Time():
                return self.times / 1000
            case plan.ScalarBinary(op, left, right):
                with np.errstate(all="ignore"):
                    return functions.scalar_binary(op, self.scalar(left), self.scalar(right))
            case plan.ScalarOf(vector):
                found = self.vector(vector)
                only = found.present.sum(axis=0) == 1
                return np.where(only, np.where(found.present, found.values, 0.0).sum(axis=0), np.nan)

    # --- vectors ---

    def vector(self, node: plan.VectorNode) -> Vector:
        """Elements per series and step."""
        self._tick()
        match node:
            case plan.Selector():
                return self._newest(node)
            case plan.RangeCall():
                return self._range_call(node)
            case plan.Elementwise():
                return self._elementwise(node)
            case plan.VectorOf(scalar):
                return self.constant(self.scalar(scalar))
            case plan.Aggregation(op, vector, labels, without, parameter):
                numbers = np.zeros(self._steps.count) if parameter is None else self.scalar(parameter)
                return aggregate(op, self.vector(vector), labels=labels, without=without, parameter=numbers)
            case plan.VectorScalar(op, vector, scalar, swapped, as_bool):
                number, elements = self.scalar(scalar), self.vector(vector)
                with np.errstate(all="ignore"):
                    return binary.vector_scalar(op, elements, number, swapped=swapped, as_bool=as_bool)
            case plan.VectorVector(op, left, right, matching, as_bool):
                first, second = self.vector(left), self.vector(right)
                with np.errstate(all="ignore"):
                    return binary.vector_vector(op, first, second, matching, as_bool=as_bool)
            case plan.SetOperation(op, left, right, matching):
                return binary.set_operation(op, self.vector(left), self.vector(right), matching)

    def _tick(self) -> None:
        if self._clock.monotonic() > self._deadline:
            raise QueryTimeout(f"query timed out after {self._limits.timeout_s:g} s")

    def _elementwise(self, node: plan.Elementwise) -> Vector:
        elements = self.vector(node.vector)
        parameters = [self.scalar(parameter) for parameter in node.parameters]
        present = elements.present
        if node.function == "clamp":
            present = present & ~functions.clamp_is_empty(*parameters)
        with np.errstate(all="ignore"):
            values = functions.ELEMENTWISE[node.function](elements.values, *parameters)
        return elements.having(np.ascontiguousarray(values, np.float64), present)

    def _newest(self, node: plan.Selector) -> Vector:
        steps = self._placed(node)
        batch = self._select(node.matchers, steps.first_ms - LOOKBACK_MS, steps.last_ms)
        values, present = windows.instants(batch, steps, LOOKBACK_MS)
        return named(batch.labels, *self._spread(values, present), nameless=False)

    def _range_call(self, node: plan.RangeCall) -> Vector:
        steps, matchers = self._placed(node.window.selector), node.window.selector.matchers
        parameter = np.zeros(steps.count) if node.parameter is None else self.scalar(node.parameter)
        nameless = node.function not in windows.KEEPS_NAME
        span = hours.span(node.function, steps, node.window.range_ms)
        if span is not None:
            batch = self._select_cells(matchers, span, hours.columns(node.function))
            found = hours.combine(node.function, batch, span, steps)
            if found is not None:
                return named(batch.labels, *self._spread(*found), nameless=nameless)
        return self._swept(node, steps, parameter, nameless=nameless)

    def _swept(self, node: plan.RangeCall, steps: Steps, parameter: F64, *, nameless: bool) -> Vector:
        window = node.window
        batch = self._select(window.selector.matchers, steps.first_ms - window.range_ms, steps.last_ms)
        if node.function == "quantile_over_time" and batch.basis.raw_expired_ms and batch.basis.asof_ms is None:
            return self._sketched(node, steps, parameter)
        if steps.count == 1 < self._steps.count and (parameter != parameter[0]).any():
            # The window stands still (`@`) while the parameter moves: the same window is asked at every step.
            steps = Steps(steps.first_ms, 0, self._steps.count)
        values, present = windows.sweep(node.function, batch, steps, window.range_ms, parameter)
        return named(batch.labels, *self._spread(values, present), nameless=nameless)

    def _sketched(self, node: plan.RangeCall, steps: Steps, parameter: F64) -> Vector:
        """Percentiles of windows whose samples are gone in part: what is left of those hours are their sketches."""
        matchers, range_ms = node.window.selector.matchers, node.window.range_ms
        self._read.pop((matchers, steps.first_ms - range_ms, steps.last_ms), None)
        if steps.count == 1 < self._steps.count:
            steps = Steps(steps.first_ms, 0, self._steps.count)
        ends = steps.first_ms + np.arange(steps.count, dtype=np.int64) * steps.step_ms
        cuts = percentiles.segments(ends - range_ms, ends)
        found = self._storage.select_sketches(matchers, cuts, tick=self._tick)
        self._check(len(found.labels), len(found.row), matchers)
        self._bases.append(found.basis)
        return named(found.labels, *percentiles.of_series(found, cuts, parameter, self._tick), nameless=True)

    # --- reading ---

    def _placed(self, selector: plan.Selector) -> Steps:
        """The steps a selector looks at: shifted by its offset, or standing still at one time."""
        if selector.at is None:
            return Steps(self._steps.first_ms - selector.offset_ms, self._steps.step_ms, self._steps.count)
        borders = {"start": self._steps.first_ms, "end": self._steps.last_ms}
        at = borders[selector.at] if isinstance(selector.at, str) else selector.at
        return Steps(at - selector.offset_ms, 0, 1)

    def _spread(self, values: F64, present: Bool) -> tuple[F64, Bool]:
        """The one column of a standing selector, repeated at every step."""
        if values.shape[1] == self._steps.count:
            return values, present
        return np.repeat(values, self._steps.count, axis=1), np.repeat(present, self._steps.count, axis=1)

    def _select(self, matchers: tuple[Matcher, ...], start_ms: int, end_ms: int) -> SeriesBatch:
        key = (matchers, start_ms, end_ms)
        if key not in self._read:
            batch = self._storage.select(matchers, start_ms, end_ms, tick=self._tick)
            self._check(len(batch.labels), len(batch.ts), matchers)
            columns = windows.times(batch.offsets), windows.times(batch.ts), windows.numbers(batch.values)
            self._read[key] = SeriesBatch(batch.labels, *columns, batch.basis)
        return self._read[key]

    def _select_cells(self, matchers: tuple[Matcher, ...], span: hours.Span, columns: tuple[str, ...]) -> HourBatch:
        key = (matchers, span.borders.tobytes(), columns)
        if key not in self._cells_read:
            batch = self._storage.select_cells(matchers, span.borders, columns, tick=self._tick)
            self._check(len(batch.labels), batch.count.size, matchers)
            self._cells_read[key] = batch
        return self._cells_read[key]

    def _check(self, series: int, samples: int, matchers: Sequence[Matcher]) -> None:
        self._samples_read += samples
        asked = ",".join(f"{matcher.name}{matcher.op}{matcher.value!r}" for matcher in matchers)
        if series > self._limits.series:
            raise QueryTooLarge(f"{{{asked}}} selects {series} series; at most {self._limits.series} are read")
        if self._samples_read > self._limits.samples:
            raise QueryTooLarge(f"more than {self._limits.samples} samples to read; ask for less time or fewer series")
        if series * self._steps.count > self._limits.cells:
            raise QueryTooLarge(
                f"{{{asked}}} has {series} series at {self._steps.count} steps; "
                f"at most {self._limits.cells} values are computed: use a longer step or fewer series"
            )


def _nothing(kind: str, times: I64, text: str = "") -> Result:
    shape = (0, len(times))
    return Result(kind, times, [], np.empty(shape), np.empty(shape, np.bool_), text=text)
