"""A rule of any kind that is shown in its form and sent back untouched, as browsers send it, is the rule it was."""

from dataclasses import fields
from typing import Any

from django.forms import Textarea
from hypothesis import given
from hypothesis import strategies as st

from alerts.judging import limits as judging_limits
from alerts.judging.kinds import Kind
from alerts.models import Rule
from alerts.pages.editor.form import RuleForm, initial_of
from alerts.rulebook import Draft
from alerts.telling.limits import WINDOW_MS_MAX
from spm import limits
from tests.alerts.pages.test_editor import fields_of

TEXTS = st.text(alphabet="ab =,#&<>\"'%é\n", max_size=20).filter(str.strip)
NAMES = st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,8}", fullmatch=True)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
DURATIONS = st.integers(0, limits.RULE_DURATION_MAX_MS)
LONG_DURATIONS = st.integers(1_000, limits.RULE_DURATION_MAX_MS)
ANNOTATION_NAMES = st.sampled_from(["summary", "description", "runbook_url"]) | NAMES


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    kind = draw(st.sampled_from(Kind))
    comparator = draw(st.sampled_from(["", ">", ">=", "<", "<=", "==", "!="]))
    threshold, distance = draw(NUMBERS), draw(st.none() | st.sampled_from([0.0, 1.0]))
    sign = {">": -1, ">=": -1, "<": 1, "<=": 1}.get(comparator)
    return Rule(
        kind=kind.value,
        comparator=comparator,
        threshold=threshold,
        recovery=None if sign is None or distance is None else threshold + sign * distance,
        name=draw(TEXTS).replace("\n", " ").strip(),
        expr=draw(TEXTS).strip(),
        severity=draw(st.sampled_from(["info", "warning", "critical"])),
        missing=draw(st.sampled_from([value for value, _ in Rule.MISSING])),
        receivers=draw(st.lists(st.sampled_from(["a@example.org", "b@example.org"]), unique=True)),
        enabled=draw(st.booleans()),
        for_ms=draw(DURATIONS),
        keep_firing_for_ms=draw(DURATIONS),
        missing_for_ms=draw(DURATIONS),
        hold_ms=draw(st.integers(0, judging_limits.HOLD_MAX_MS)),
        window_ms=draw(LONG_DURATIONS),
        forget_ms=draw(LONG_DURATIONS),
        horizon_ms=draw(st.integers(0, 366 * 24 * limits.HOUR_MS)),
        weeks=draw(st.integers(judging_limits.ANOMALY_WEEKS_MIN, judging_limits.ANOMALY_WEEKS_MAX)),
        spread_min=abs(draw(NUMBERS)),
        by=draw(st.lists(NAMES, unique=True, max_size=4)),
        labels=draw(st.dictionaries(NAMES, TEXTS, max_size=4)),
        annotations=draw(st.dictionaries(ANNOTATION_NAMES, TEXTS, max_size=4)),
        schedule_cron=draw(st.sampled_from(["", "0 8 * * 1-5"])),
        schedule_zone=draw(st.sampled_from(["UTC", "Europe/Berlin"])),
        schedule_ms=draw(st.integers(1, WINDOW_MS_MAX)),
    )


def content_of(values: Any) -> dict[str, Any]:
    every = {
        field.name: values[field.name] if isinstance(values, dict) else getattr(values, field.name)
        for field in fields(Draft)
    }
    return {**every, "by": list(every["by"]), "receivers": list(every["receivers"])}


def as_browsers_send_it(form: RuleForm) -> dict[str, str]:
    """Return the fields with the line ends of browsers: CRLF in a text area, none elsewhere."""
    sent = fields_of(f'<form id="rule-form">{form}</form>')
    line_ends = {name: "\r\n" if isinstance(form.fields[name].widget, Textarea) else "" for name in sent}
    return {name: text.replace("\n", line_ends[name]) for name, text in sent.items()}


@given(rule=rules())
def test_a_rule_of_any_kind_that_is_saved_untouched_is_the_rule_it_was(rule: Rule) -> None:
    shown = RuleForm(initial=initial_of(rule), rule=rule, app=1, querier=None, at_ms=0)
    form = RuleForm(as_browsers_send_it(shown), rule=rule, app=1, querier=None, at_ms=0)
    assert form.is_valid(), form.errors
    assert content_of(form.values()) == content_of(rule)
