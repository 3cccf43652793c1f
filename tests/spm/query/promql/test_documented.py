"""Claims about the documents of queries: every expression in them has an answer, every limit is the one in force."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from spm import limits
from spm.limits import HOUR_MS
from spm.query.fake import FakeStorage
from spm.query.promql.engine import Engine
from spm.query.promql.kernels.over_time import FUNCTIONS
from spm.query.promql.planning.signatures import SIGNATURES

ROOT = Path(__file__).resolve().parents[4]
PROMQL, QUERY_API = ((ROOT / "docs" / "reference" / name).read_text() for name in ("promql.md", "query-api.md"))
START = 480_000 * HOUR_MS
SHOWN = [line for block in re.findall(r"```promql\n(.*?)```", PROMQL, re.DOTALL) for line in block.splitlines()]


@pytest.mark.parametrize("expr", SHOWN)
def test_every_documented_expression_has_an_answer(expr: str) -> None:
    storage = FakeStorage()
    for metric in ("request_seconds", "cpu_usage_user", "requests_total"):
        ts = START + np.arange(1, 48 * 6) * 600_000
        storage.add(metric, {"host": "a"}, ts, np.arange(float(len(ts))))
    result = Engine(storage).range(expr, START + 24 * HOUR_MS, START + 48 * HOUR_MS, HOUR_MS)
    assert result.present.any()
    assert any("aggregates" in note or "percentiles" in note for note in result.notes)


def test_the_documents_contain_expressions() -> None:
    assert len(SHOWN) >= 5


def test_documented_functions_exist() -> None:
    names = set(re.findall(r"`([a-z_]+(?:_over_time|_quantiles?|k))`", PROMQL))
    assert names <= {*SIGNATURES, *FUNCTIONS, "limitk"}
    assert len(names) > 10


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("series of a selector", limits.QUERY_SERIES_MAX),
        ("samples read", limits.QUERY_SAMPLES_MAX),
        ("days that hold data", limits.QUERY_DAYS_MAX),
        ("steps of a range after the first", limits.QUERY_POINTS_MAX),
        ("points of the answer", limits.QUERY_SHOWN_MAX),
    ],
)
def test_documented_limits_are_those_in_force(text: str, number: int) -> None:
    assert f"| {text} | {number:,} |" in QUERY_API


def test_limits_in_sentences_are_those_in_force() -> None:
    assert f"{limits.QUERY_BYTES_MAX // 1_000_000} MB |" in QUERY_API
    assert f"| time | {limits.QUERY_TIMEOUT_S} s" in QUERY_API
    assert f"| {limits.QUERY_PARALLEL_MAX}; in each process {limits.QUERY_WAITING_MAX} more wait up to" in QUERY_API
    characters, operators, brackets = (
        limits.QUERY_TEXT_CHARS_MAX,
        limits.QUERY_OPERATORS_MAX,
        limits.QUERY_DEPTH_MAX,
    )
    assert f"at most {characters:,} characters, {operators} operators and {brackets} nested brackets" in " ".join(
        QUERY_API.split()
    )
