"""Runs the evaluations of a script on the engine and compares the results with the expected ones.

Samples lie in memory. A query that meets a series of native histograms is stopped and skipped, as such samples do not
exist here. Values agree within Prometheus' own 1e-6; remarks are those that begin with "PromQL".
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from spm.errors import BadQuery, QueryFailed, SpmError
from spm.query.fake import FakeStorage
from spm.query.promql.engine import Engine, Result
from spm.query.request.batches import METRIC_NAME, DeadlineCheck, Matcher, SeriesBatch
from spm.store.matchers import mask
from tests.spm.query.promql.promqltest.script import (
    NATIVE,
    STARTS,
    BadScript,
    Clear,
    Eval,
    ExpectedMessage,
    Labels,
    Load,
    commands,
)

_TOLERANCE = 1e-6
_NOT_SUPPORTED = {"native histograms are not supported": NATIVE, "no start times are stored": STARTS}


class BeyondFloats(Exception):
    """A query has selected a series with samples that are not floats."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a case: `problem` is empty if it passed."""

    path: str
    case: Eval
    problem: str = ""
    skipped: bool = False

    def __str__(self) -> str:
        return f"{self.path}:{self.case.line}: {self.case.expr}: {self.problem}"


class ScriptStorage(FakeStorage):
    """The samples of a script, and the labels of the series with samples that are not floats."""

    def __init__(self) -> None:
        super().__init__()
        self.others: list[tuple[Labels, str]] = []

    def select(
        self, matchers: Sequence[Matcher], start_ms: int, end_ms: int, *, check_deadline: DeadlineCheck | None = None
    ) -> SeriesBatch:
        for labels, what in self.others:
            if all(mask([labels.get(matcher.name, "")], matcher)[0] for matcher in matchers):
                raise BeyondFloats(what)
        return super().select(matchers, start_ms, end_ms)


@dataclass
class Runner:
    """Runs one script from its first line to its last."""

    path: str
    storage: ScriptStorage = field(default_factory=ScriptStorage)

    def outcomes(self, text: str) -> Iterator[Outcome]:
        """Yield the outcome of every evaluation."""
        line = 0
        try:
            for line, command in commands(text):  # noqa: B007  # where an error came up
                if isinstance(command, Clear):
                    self.storage = ScriptStorage()
                elif isinstance(command, Load):
                    self._load(command)
                else:
                    yield self._outcome(command)
        except (BadQuery, BadScript) as error:
            rest = Eval(line + 1, "the rest of the script", 0, 0, 0)
            yield Outcome(self.path, rest, f"cannot be read: {error}", skipped=True)

    def _load(self, load: Load) -> None:
        for series in sorted(load.series, key=lambda series: sorted(series.labels.items())):
            if series.beyond:
                self.storage.others.append((series.labels, series.beyond))
                continue
            points = [(i * load.interval_ms, value) for i, value in enumerate(series.values) if value is not None]
            labels = {name: value for name, value in series.labels.items() if name != METRIC_NAME}
            values = np.array([value for _, value in points], np.float64)
            self.storage.add(series.labels.get(METRIC_NAME, ""), labels, [ts for ts, _ in points], values)

    def _outcome(self, case: Eval) -> Outcome:
        if any(series.beyond for series in case.series):
            return Outcome(self.path, case, case.series[0].beyond or NATIVE, skipped=True)
        try:
            result = self._evaluate(case)
        except BeyondFloats as error:
            return Outcome(self.path, case, str(error), skipped=True)
        except BadQuery as error:
            skipped = next((what for words, what in _NOT_SUPPORTED.items() if words in str(error)), "")
            return Outcome(self.path, case, skipped or _compare_failure(case, error), skipped=bool(skipped))
        except QueryFailed as error:
            return Outcome(self.path, case, _compare_failure(case, error))
        if case.fail is not None:
            return Outcome(self.path, case, "expected a failure")
        return Outcome(self.path, case, _compare_annotations(case, result) or _compare(case, result))

    def _evaluate(self, case: Eval) -> Result:
        engine = Engine(self.storage)
        if case.step_ms == 0:
            return engine.instant(case.expr, case.start_ms)
        return engine.range(case.expr, case.start_ms, case.end_ms, case.step_ms)


def run(path: Path) -> list[Outcome]:
    """Return the outcome of every evaluation in a file."""
    return list(Runner(path.name).outcomes(path.read_text()))


def _compare_failure(case: Eval, error: SpmError) -> str:
    if case.fail is None:
        return f"failed: {error}"
    return "" if case.fail.accepts(str(error)) else f"failed with other words: {error}"


def _compare_annotations(case: Eval, result: Result) -> str:
    given = {
        "warn": [text for text in result.warnings if text.startswith("PromQL ")],
        "info": [text for text in result.notes if text.startswith("PromQL ")],
    }
    for kind, wanted in (("warn", case.warnings), ("info", case.infos)):
        if kind in case.silent and given[kind]:
            return f"unexpected {kind}: {given[kind]}"
        problem = _unmet(kind, wanted, given[kind])
        if problem:
            return problem
    return ""


def _unmet(kind: str, expected: list[ExpectedMessage], given: list[str]) -> str:
    for expected_message in expected:
        if not any(expected_message.accepts(text) for text in given):
            return f"no {kind} {expected_message.text or ''}, only {given}"
    if expected and not all(any(expected_message.accepts(text) for expected_message in expected) for text in given):
        return f"more {kind} than expected: {given}"
    return ""


def _compare(case: Eval, result: Result) -> str:
    if case.text is not None:
        return "" if result.text == case.text else f"got {result.text!r} instead of {case.text!r}"
    if result.kind == "string":
        return f"got the string {result.text!r}"
    if result.samples is not None:
        return _compare_window(case, result.samples)
    if case.scalar is not None and not case.series:
        single = result.kind == "scalar" and same(case.scalar, float(result.values[0, 0]))
        return "" if single else f"got {result.values.tolist()} instead of the scalar {case.scalar}"
    return _compare_series(case, result)


def _compare_window(case: Eval, batch: SeriesBatch) -> str:
    start, end, step = case.window or (0, 0, 1)
    expected = {
        _key(series.labels): [
            (t, value)
            for t, value in zip(range(start, end + 1, step), series.values, strict=False)
            if value is not None
        ]
        for series in case.series
    }
    borders = batch.offsets.tolist()
    actual = {
        _key(labels): list(zip(batch.ts[low:high].tolist(), batch.values[low:high].tolist(), strict=True))
        for labels, low, high in zip(batch.labels, borders, borders[1:], strict=False)
        if high > low
    }
    if actual.keys() != expected.keys():
        return f"got series {sorted(actual)} instead of {sorted(expected)}"
    for key, points in expected.items():
        is_same = len(points) == len(actual[key]) and all(
            a == c and same(b, d) for (a, b), (c, d) in zip(points, actual[key], strict=True)
        )
        if not is_same:
            return f"got {actual[key]} instead of {points}"
    return ""


def _compare_series(case: Eval, result: Result) -> str:
    count = len(result.times)
    series_expected = [(_key(series.labels), (series.values + [None] * count)[:count]) for series in case.series]
    series_expected = [(key, values) for key, values in series_expected if any(value is not None for value in values)]
    actual = [
        (_key(labels), [float(v) if p else None for v, p in zip(values, present, strict=True)])
        for labels, values, present in zip(result.labels, result.values, result.present, strict=True)
    ]
    if not case.ordered:
        series_expected, actual = (
            sorted(series_expected, key=lambda pair: pair[0]),
            sorted(actual, key=lambda pair: pair[0]),
        )
    if [key for key, _ in series_expected] != [key for key, _ in actual]:
        return f"got series {[key for key, _ in actual]} instead of {[key for key, _ in series_expected]}"
    for (key, expected), (_, values) in zip(series_expected, actual, strict=True):
        if not all(_alike(a, b) for a, b in zip(expected, values, strict=True)):
            return f"got {values} instead of {expected} for {key}"
    return ""


def _key(labels: Labels) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(labels.items()))


def _alike(a: float | None, b: float | None) -> bool:
    return a is b if a is None or b is None else same(a, b)


def same(a: float, b: float) -> bool:
    """Whether Prometheus regards two numbers as equal."""
    if a == b or (math.isnan(a) and math.isnan(b)):
        return True
    if math.isinf(a) or math.isinf(b) or math.isnan(a) or math.isnan(b):
        return False
    total = abs(a) + abs(b)
    if a == 0 or b == 0 or total < 2.2250738585072014e-308:
        return abs(a - b) < _TOLERANCE * 2.2250738585072014e-308
    return abs(a - b) / min(total, 1.7976931348623157e308) < _TOLERANCE
