"""Prometheus' unit tests of rules run on our engine and automaton, and give the verdicts of promtool."""

import json
import math
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.core.management import CommandError, call_command

from alerts.recording.record import STALE
from alerts.rulefiles.parse import parse
from alerts.rulefiles.unit_tests.content import parse_tests
from alerts.rulefiles.unit_tests.notation import series_labels, series_values
from alerts.rulefiles.unit_tests.run import failures_of
from spm.errors import BadMessage
from tests.conftest import missing_service

UP = {"series": 'up{job="a", host="x"}', "values": "1 1 0 0 0 0 1 1 0 0"}
DOWN = {"alert": "Down", "expr": "up == 0"}
CPU = {"series": 'cpu{host="x"}', "values": "10+10x12"}
BUSY = {"alert": "Busy", "expr": "cpu > 55"}
RECORD = {"record": "job:up", "expr": "sum by (job) (up)"}
_X = {"job": "a", "host": "x"}


def alerts(minute: float, *labels: dict[str, str], name: str = "Down", texts: dict[str, str] | None = None) -> Any:
    """What must fire at a minute: alerts with these labels."""
    expected = [{"exp_labels": each, **({"exp_annotations": texts} if texts else {})} for each in labels]
    return {"eval_time": f"{int(minute * 60)}s", "alertname": name, "exp_alerts": expected}


def samples(minute: float, expr: str, *values: tuple[str, Any]) -> Any:
    """What an expression must give at a minute."""
    rows = [{"labels": labels, "value": value} for labels, value in values]
    return {"eval_time": f"{int(minute * 60)}s", "expr": expr, "exp_samples": rows}


def case(rules: list[Any], series: list[Any], *checks: Any, **options: Any) -> tuple[Any, Any, Any]:
    """A rule file, a test and options of the test."""
    return rules, series, (list(checks), options)


def firing(values: str, expr: str, times: dict[float, bool], **rule: Any) -> tuple[Any, Any, Any]:
    """A rule on one series x, and whether it fires at some minutes."""
    checks = [alerts(minute, *([{}] if is_firing else []), name="A") for minute, is_firing in times.items()]
    return case([{"alert": "A", "expr": expr, **rule}], [{"series": "x", "values": values}], *checks)


FORMATS = {
    "a": "{{ $value }} {{ humanize $value }} {{ humanize1024 $value }} {{ humanizeDuration $value }}",
    "b": '{{ printf "%.2f %8.3g %e" $value $value $value }} {{ $value | humanizePercentage }}',
    "c": '{{ if gt $value 5.0 }}big{{ else }}small{{ end }} {{ "a b" | title | toUpper }}',
    "d": '{{ $labels.host | reReplaceAll "(x)" "<$1>" }} {{ with $labels.none }}y{{ else }}n{{ end }}',
    "e": "{{ 1700000000.0 | humanizeTimestamp }} {{ 0.00012 | humanize }} {{ 0.0 | humanizeDuration }}",
    "f": "{{ $labels }} {{- $labels.nope -}} | {{ stripPort `a.b:80` }} {{ match `^x` $labels.host }}",
}

CASES: dict[str, tuple[tuple[Any, Any, Any], bool]] = {
    "fires at once": (case([DOWN], [UP], alerts(1), alerts(2, _X), alerts(5, _X), alerts(6)), True),
    "fires at once, expected too early": (case([DOWN], [UP], alerts(1, _X)), False),
    "fires, expected not to": (case([DOWN], [UP], alerts(3)), False),
    "waits for": (firing("0 0 1x9", "x == 1", {3: False, 4: False, 5: True, 9: True}, **{"for": "3m"}), True),
    "waits for, expected a step early": (firing("0 0 1x9", "x == 1", {4: True}, **{"for": "3m"}), False),
    "a break begins for anew": (
        firing("1 1 1 0 1 1 1 1", "x == 1", {2: False, 4: False, 6: False, 7: True}, **{"for": "3m"}),
        True,
    ),
    "for between two steps": (firing("1x9", "x == 1", {1: False, 2: True}, **{"for": "90s"}), True),
    "keeps firing": (
        firing("1 1 0 0 0 0 0", "x == 1", {1: True, 2: True, 3: True, 4: False}, keep_firing_for="2m"),
        True,
    ),
    "keeps firing, expected to end": (firing("1 1 0 0", "x == 1", {3: False}, keep_firing_for="2m"), False),
    "a new violation ends keeping": (
        firing("1 0 0 1 0 0 0 0", "x == 1", {2: True, 3: True, 5: True, 6: True, 7: False}, keep_firing_for="3m"),
        True,
    ),
    "for and keep firing": (
        firing(
            "1x3 0x5",
            "x == 1",
            {1: False, 2: True, 4: True, 5: True, 6: False},
            **{"for": "2m", "keep_firing_for": "2m"},
        ),
        True,
    ),
    "a vanishing series keeps its value for the look-back": (  # a sample of five minutes ago is seen by Prometheus 2
        firing("1 1 _x12", "x == 1", {1: True, 5: True, 7: False}),
        True,
    ),
    "a stale series ends at once": (firing("1 1 stale 0", "x == 1", {1: True, 2: False}), True),
    "absent fires when nothing is there": (firing("1 1 stale", "absent(x)", {1: False, 2: True, 4: True}), True),
    "absent has the labels of its selector": (
        case([{"alert": "A", "expr": 'absent(y{a="b"})', "for": "1m"}], [UP], alerts(1, {"a": "b"}, name="A")),
        True,
    ),
    "vanishing while pending": (firing("1 stale 1x8", "x == 1", {2: False, 4: False, 5: True}, **{"for": "3m"}), True),
    "NaN is no violation of a comparison": (firing("NaN 1 NaN", "x > 0", {0: False, 1: True, 2: False}), True),
    "NaN differs from every number": (firing("NaN 0 1", "x != 0", {0: True, 1: False, 2: True}), True),
    "without comparison being there is violated": (firing("0 0 _x9", "x", {0: True, 5: True, 7: False}), True),
    "bool makes every answer a violation": (firing("0 1", "x > bool 5", {0: True, 1: True}), True),
    "the number may stand on the left": (firing("1 5 9", "4 < x", {0: False, 1: True, 2: True}), True),
    "several series are alerts of their own": (
        case(
            [DOWN],
            [UP, {"series": 'up{job="a", host="y"}', "values": "1 0x9"}],
            alerts(1, {**_X, "host": "y"}),
            alerts(3, _X, {**_X, "host": "y"}),
        ),
        True,
    ),
    "one of two expected": (
        case([DOWN], [UP, {"series": 'up{job="a", host="y"}', "values": "1 0x9"}], alerts(3, _X)),
        False,
    ),
    "labels and annotations are rendered": (
        case(
            [
                {
                    **BUSY,
                    "labels": {"severity": "page", "where": "{{ $labels.host }}-1"},
                    "annotations": {"summary": "{{ $labels.host }} is at {{ $value }}, {{ $value | humanize }}"},
                }
            ],
            [CPU],
            alerts(
                5,
                {"host": "x", "severity": "page", "where": "x-1"},
                name="Busy",
                texts={"summary": "x is at 60, 60"},
            ),
        ),
        True,
    ),
    "annotations differ": (
        case(
            [{**BUSY, "annotations": {"summary": "{{ $value }}"}}],
            [CPU],
            alerts(6, {"host": "x"}, name="Busy", texts={"summary": "60"}),
        ),
        False,
    ),
    "formats of numbers": (
        case(
            [
                {
                    "alert": "A",
                    "expr": "cpu * 123456.789 > 0",
                    "annotations": FORMATS,
                }
            ],
            [CPU],
            alerts(
                0,
                {"host": "x"},
                name="A",
                texts={
                    "a": "1.2345678900000001e+06 1.235M 1.177Mi 14d 6h 56m 7s",
                    "b": "1234567.89 1.23e+06 1.234568e+06 1.235e+08%",
                    "c": "big A B",
                    "d": "<x> n",
                    "e": "2023-11-14 22:13:20 +0000 UTC 120u 0s",
                    "f": "map[host:x]| a.b true",
                },
            ),
        ),
        True,
    ),
    "keeping has the last value": (
        case(
            [{**BUSY, "expr": "cpu < 35", "keep_firing_for": "3m", "annotations": {"v": "{{ $value }}"}}],
            [CPU],
            alerts(4, {"host": "x"}, name="Busy", texts={"v": "30"}),
        ),
        True,
    ),
    "recording rules": (case([RECORD], [UP], samples(2, "job:up", ('job:up{job="a"}', 0))), True),
    "recording rules, wrong value": (case([RECORD], [UP], samples(2, "job:up", ('job:up{job="a"}', 1))), False),
    "a rule reads the one before at the same step": (
        case([RECORD, {"record": "twice", "expr": "job:up * 2 + 1"}], [UP], samples(6, "twice", ('twice{job="a"}', 3))),
        True,
    ),
    "an alert on a recorded series": (
        case(
            [RECORD, {"alert": "A", "expr": "job:up == 0"}],
            [UP],
            alerts(2, {"job": "a"}, name="A"),
            alerts(6, name="A"),
        ),
        True,
    ),
    "a recorded series ends when its source does": (
        case(
            [{"record": "r", "expr": "x > 1"}],
            [{"series": "x", "values": "2 2 1 1"}],
            samples(1, "r", ("r", 2)),
            samples(2, "r"),
        ),
        True,
    ),
    "ALERTS while pending and firing": (
        case(
            [{**DOWN, "for": "2m"}],
            [UP],
            samples(3, "ALERTS", ('ALERTS{alertname="Down", alertstate="pending", host="x", job="a"}', 1)),
            samples(4, "ALERTS", ('ALERTS{alertname="Down", alertstate="firing", host="x", job="a"}', 1)),
            samples(6, "ALERTS"),
            samples(4, "ALERTS_FOR_STATE", ('ALERTS_FOR_STATE{alertname="Down", host="x", job="a"}', 120)),
        ),
        True,
    ),
    "an alert on ALERTS": (
        case(
            [DOWN, {"alert": "Many", "expr": "count(ALERTS) > 0"}],
            [UP],
            alerts(2, {}, name="Many"),
            alerts(1, name="Many"),
        ),
        True,
    ),
    "rates and time": (
        case([], [CPU], samples(5, "rate(cpu[2m]) * 60", ('{host="x"}', 10)), samples(5, "time()", ("{}", 300))),
        True,
    ),
    "an expression without answer": (case([], [CPU], samples(5, "cpu > 1000")), True),
    "an expression, other labels": (case([], [CPU], samples(5, "cpu", ('cpu{host="y"}', 60))), False),
    "a check between two steps": (case([DOWN], [UP], alerts(2.5, _X), alerts(1.9)), True),
    "a longer interval of judging": (
        case([{**DOWN, "for": "2m"}], [UP], alerts(3), alerts(4, _X), alerts(5, _X), every="2m"),
        True,
    ),
}


def written(folder: Path, name: str) -> Path:
    """The files of a case; returns the path of its test file."""
    rules, series, (checks, options) = CASES[name][0]
    folder.mkdir(exist_ok=True)
    (folder / "rules.yml").write_text(json.dumps({"groups": [{"name": "g", "rules": rules}]}))
    test = {
        "interval": "1m",
        "input_series": series,
        "alert_rule_test": [check for check in checks if "alertname" in check],
        "promql_expr_test": [check for check in checks if "expr" in check],
    }
    content = {"rule_files": ["rules.yml"], "evaluation_interval": options.get("every", "1m"), "tests": [test]}
    (folder / "test.yml").write_text(json.dumps(content))
    return folder / "test.yml"


@pytest.mark.parametrize("name", CASES)
def test_a_case_has_the_verdict_that_is_written_beside_it(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, name)
    files = [parse((tmp_path / "rules.yml").read_text(), "rules.yml")]
    failures = failures_of(parse_tests(path.read_text(), "test.yml"), files)
    assert (failures == []) is CASES[name][1], failures


@pytest.mark.real
def test_promtool_gives_the_same_verdict_in_every_case(tmp_path: Path) -> None:
    promtool = shutil.which("promtool") or missing_service("no promtool here")
    verdicts = {}
    for number, name in enumerate(CASES):
        path = written(tmp_path / str(number), name)
        run = subprocess.run([promtool, "test", "rules", str(path)], capture_output=True, timeout=60, check=False)
        verdicts[name] = run.returncode == 0
    assert verdicts == {name: verdict for name, (_, verdict) in CASES.items()}
    assert len(verdicts) >= 20


def test_the_command_says_success_or_what_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("rules", "test", str(written(tmp_path, "fires at once")))
    assert capsys.readouterr().out == "SUCCESS\n"
    with pytest.raises(CommandError, match=r"FAILED\ntest 1, alert Down at 60s: got \[\], wanted"):
        call_command("rules", "test", str(written(tmp_path, "fires at once, expected too early")))


NOTATION: dict[str, list[float | None]] = {
    "1 2 -3.5": [1, 2, -3.5],
    "0+10x3": [0, 10, 20, 30],
    "5-1x2": [5, 4, 3],
    "7x2": [7, 7, 7],
    "_ _x2 1": [None, None, None, 1],
    "1e3 Inf": [1000, math.inf],
    "": [],
}


@pytest.mark.parametrize(("text", "expected"), NOTATION.items(), ids=NOTATION)
def test_values_are_written_out(text: str, expected: list[float | None]) -> None:
    assert series_values(text) == expected


def test_stale_markers_and_nan_are_different_values() -> None:
    stale, nan = series_values("stale NaN")
    bits = np.array([stale, nan, STALE], np.float64).view(np.uint64)
    assert bits[0] == bits[2] != bits[1]


@pytest.mark.parametrize("text", ["a", "1x", "1+x3", "1+1", "stale+1x2", "1x999999999"])
def test_what_is_no_value_is_refused(text: str) -> None:
    with pytest.raises(BadMessage):
        series_values(text)


@pytest.mark.parametrize("text", ["up{", 'up{a=~"b"}', "sum(up)"])
def test_what_is_no_series_is_refused(text: str) -> None:
    with pytest.raises(BadMessage):
        series_labels(text)
