"""The engine gives the answers of a real Prometheus, for random expressions over equal samples.

Debian's Prometheus 2.42 has ranges closed on the left, drops names at once and extrapolates counters near zero in
another order: samples lie off every border, and counters stay high. A Prometheus 3 (`SPM_PROMETHEUS` names its
binary; 3.16 was asked) is asked for everything, with the features on that are always on here. What
differs for a reason that is listed is counted and printed; anything else fails. As a proof:
`SPM_DIFFERENTIAL=10000 bin/test --proof differential`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest

from spm.errors import SpmError
from spm.query.promql.engine import Engine, QueryLimits
from tests.conftest import missing_service
from tests.servers.processes import free_ports
from tests.servers.prometheus import Judge, Refused, answer_of, binary, differs, is_modern, judging
from tests.spm.query.promql.generated import MINUTES, START, ExpressionMaker, dataset, stored

# What Prometheus answers in a way of its own, by the expression and the difference that show it.
REASONS = {
    r"\bquantile(_over_time)?\b.* here, nan there$": (
        "a rank that falls on a sample is that sample since 3.16; judges before that add zero times the next one to "
        "it, and zero times an infinity is NaN"
    ),
    r"timestamp\([a-z_]+(\{[^}]*\})? @ (start|end)\(\) offset": (
        "timestamp() of a selector that `@` holds and an offset moves reads less far back than the selector alone, in "
        "2.42 and in 3: it leaves out series that the selector shows"
    ),
    r"info\([a-z_]+(\{[^}]*\})? offset ": (
        "info() looks an offset's distance away for info series, and asks then what they were at the step itself: some "
        "are too old by then, others newer than the elements they are to go with"
    ),
    r"\blimitk\b.*(: series only here| at \d+: )": (
        "limitk is promised to keep some k elements: the judge takes those its storage names first, we the first by "
        "the order of series"
    ),
    r"\bstd(dev|var)(_over_time)?\b.*(timestamp|ts_of_|\btime\().* at \d+: ": (
        "of times, which are large beside their distances, the judge loses the eighth digit; we are right to the last "
        "(reckoned in fractions for two of them)"
    ),
    r"\b(sin|cos|tan)\(.*(\bexp|\bcosh|\bsinh|\^|\bstdvar).* at \d+: ": (
        "of a number of many digits an angle is decided by the last bit, in which Go's powers differ from C's, and "
        "variances of counters by how they are summed"
    ),
    r"\b(g|h|c_total|lat_bucket)\b.*\bor\b.*\b\1\b.*: series only here .*only there \[\]$": (
        "of elements of one metric, some of which lost their name, the judge makes one series, named or not as the "
        "first of them; what lost its name and what kept it are two here, and so they are at each step there"
    ),
    r"(\^.*%|%.*\batan2\b).* at \d+: ": (
        "a power or an angle differs in its last bit between Go and C, and the remainder of a number that is large "
        "beside it, as a time is, is little else"
    ),
}
# What Prometheus 2 answers otherwise than 3.
REASONS_OF_2 = {
    r"\b(topk|bottomk)\b.*: (series only here \[\(|.*: other times)": (
        "where there are not numbers enough, 2.42 keeps the last of the elements that are NaN, 3 the first, as we do"
    ),
    r"(==|!=|[<>]=?) .*: refused here only: multiple matches for labels": (
        "Prometheus 2 counts the matches that a comparison keeps, 3 all of them, as we do"
    ),
    r"\bor\b.*refused here only: vector cannot contain metrics with the same labelset": (
        "2.42 drops the name of a function's elements at once, so that those of two metrics become one series; we drop "
        "names last, as 3 does when asked to, and elements of two metrics that have the same other labels are refused"
    ),
}
SEED = int(os.environ.get("SPM_DIFFERENTIAL_SEED", "7"))


@pytest.mark.real
def test_engine_gives_the_answers_of_prometheus(tmp_path: Path) -> None:
    assert compare_all(tmp_path, int(os.environ.get("SPM_DIFFERENTIAL_QUICK", "300"))) == []


@pytest.mark.proof
def test_differential_against_prometheus(tmp_path: Path) -> None:
    differences = compare_all(tmp_path, int(os.environ.get("SPM_DIFFERENTIAL", "10000")))
    assert not differences


def compare_all(folder: Path, count: int) -> list[str]:
    """Compare random expressions; return the differences, and print how many expressions both refuse."""
    if not binary() and not os.environ.get("SPM_PROMETHEUS_URL"):
        missing_service("no prometheus (Debian: apt install prometheus)")
    data, reasons = dataset(SEED, low_counters=is_modern()), REASONS if is_modern() else REASONS | REASONS_OF_2
    with judging(folder, free_ports(1)[0], data) as judge:
        engine, refused = Engine(stored(data), QueryLimits(timeout_s=3_600)), 0  # kernels may have to be compiled first
        differences: list[str] = []
        known: list[str] = []
        rng = np.random.default_rng(SEED)
        for number in range(count):
            expr = ExpressionMaker(rng, judge.modern).expression()
            start = START + 500 + 1_000 * int(rng.integers(0, MINUTES * 60))
            step, steps = 1_000 * int(rng.choice([1, 15, 60, 97, 300])), int(rng.integers(1, 8))
            problem = _difference(engine, judge, expr, (start, start + (steps - 1) * step, step))
            refused += problem == "refused"
            if problem not in ("", "refused"):
                line = f"{expr} [{start}, {steps} x {step}]: {problem}"
                reason = next((words for shape, words in reasons.items() if re.search(shape, line)), "")
                known += [f"{line}\n    {reason}"] if reason else []
                differences += [] if reason else [line]
                print((known if reason else differences)[-1], flush=True)
            if number % 1_000 == 999:
                print(
                    f"{number + 1} of {count} compare_all, {len(differences)} differ, both refuse {refused}", flush=True
                )
        print(f"{count} compare_all, {len(differences)} differ, {len(known)} for a known reason, both refuse {refused}")
    return differences


def _difference(engine: Engine, judge: Judge, expr: str, span: tuple[int, int, int]) -> str:
    try:
        theirs = judge.ask(expr, *span)
    except Refused as refusal:
        try:
            engine.range(expr, *span)
        except SpmError:
            return "refused"
        return f"refused there only: {refusal}"
    try:
        ours = answer_of(engine.range(expr, *span))
    except SpmError as error:
        return f"refused here only: {error}"
    return differs(ours, theirs)
