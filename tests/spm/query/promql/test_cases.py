"""Every case in the promqltest format passes, and the runner detects wrong results."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spm.query.promql.promqltest.__main__ import main
from tests.spm.query.promql.promqltest.case import Outcome, Runner, run

CASES = sorted((Path(__file__).parent / "cases").glob("*.test"))


@pytest.mark.parametrize("path", CASES, ids=[path.stem for path in CASES])
def test_every_case_of_a_script_passes(path: Path) -> None:
    outcomes = run(path)
    assert [str(outcome) for outcome in outcomes if outcome.problem] == []
    assert outcomes


LOADED = """
load 1m
    m{a="x"} 1+1x4 _ stale NaN
    h {{schema:0 sum:1 count:1 buckets:[1]}}
"""
WRONG = {
    "another value": 'eval instant at 1m m\n    m{a="x"} 3',
    "another series": 'eval instant at 1m m\n    m{a="y"} 2',
    "a series that is not there": 'eval instant at 1m m\n    m{a="x"} 2\n    n 1',
    "an answer where a failure is expected": "eval instant at 1m m\n    expect fail",
    "a failure": "eval instant at 1m m + nonsense(",
    "a failure in other words": "eval instant at 1m topk(NaN, m)\n    expect fail msg: something",
    "a missing warning": 'eval instant at 1m m\n    expect warn\n    m{a="x"} 2',
    "an unexpected info": 'eval instant at 3m rate(m[2m])\n    expect no_info\n    {a="x"} 0.01666666666',
    "a step too few": 'eval range from 0 to 2m step 1m m\n    m{a="x"} 1 2',
    "another order": 'load 1m\n    n 9\n\neval_ordered instant at 0 sort({__name__!="h"})\n    n 9\n    m{a="x"} 1',
    "another string": 'eval instant at 0 "a"\n    expect string "b"',
    "another scalar": "eval instant at 0 1 + 1\n    3",
    "a sample too many": 'eval instant at 1m m[2m]\n    expect range vector from 0 to 1m step 1m\n    m{a="x"} 1',
}


def outcome(script: str) -> Outcome:
    return list(Runner("script").outcomes(LOADED + "\n" + script))[-1]


@pytest.mark.parametrize("script", WRONG.values(), ids=WRONG.keys())
def test_runner_reports_wrong_results(script: str) -> None:
    result = outcome(script)
    assert result.problem
    assert not result.skipped


@pytest.mark.parametrize(
    "script",
    [
        "eval instant at 6m m\n",
        'eval instant at 7m m\n    m{a="x"} NaN',
        'eval_ordered instant at 0 m\n    m{a="x"} 1',
        "eval_fail instant at 0 topk(NaN, m)",
        "eval_fail instant at 0 topk(NaN, m)\n    expected_fail_message Parameter value is NaN",
        'eval range from 0 to 3m step 1m m\n    m{a="x"} 1+1x3',
        "eval instant at 0 1 + 1\n    2",
    ],
)
def test_runner_accepts_right_results(script: str) -> None:
    assert outcome(script).problem == ""


def test_queries_of_native_histograms_are_skipped_with_the_reason() -> None:
    result = outcome("eval instant at 0 h\n    h {{schema:0 sum:1 count:1 buckets:[1]}}")
    assert (result.skipped, result.problem) == (True, "native histograms")
    assert outcome("eval instant at 0 sum(h)\n    {} 1").skipped
    assert outcome("eval instant at 0 histogram_count(m)").skipped


def test_command_line_lists_failures_and_judges_their_share(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "one.test").write_text("eval instant at 0 1\n    1\n\neval instant at 0 1 + 1\n    3\n")
    assert main([str(tmp_path)]) == 1
    assert "one.test:4: 1 + 1: got" in capsys.readouterr().out
    assert main([str(tmp_path), "--least", "50"]) == 0
