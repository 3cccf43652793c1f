"""The form of a rule: checks what people type and turns it into a draft."""

from dataclasses import fields
from typing import Any

from django import forms

from alerts import durations
from alerts.expressions import Querier
from alerts.judging import limits as judging_limits
from alerts.judging.conditions import NO_COMPARATOR, Condition, MissingPolicy, recovery_is_sound
from alerts.models import Rule, Severity
from alerts.notify.registry import kind_of, receiver_hints
from alerts.pages.check import check
from alerts.rulebook import Draft
from alerts.telling import limits as telling_limits
from spm import limits
from spm.errors import BadQuery
from spm.limits import HOUR_MS


class DurationField(forms.CharField):
    """A duration: text on the page, milliseconds in the draft; ``empty_ms`` is what an empty field means."""

    def __init__(self, *, empty_ms: int = 0, **kwargs: Any) -> None:
        super().__init__(required=False, initial=durations.spell(empty_ms) if empty_ms else "", **kwargs)
        self._empty_ms = empty_ms

    def clean(self, value: Any) -> int:
        text = super().clean(value)
        try:
            ms = durations.read(text) if text else self._empty_ms
        except BadQuery as error:
            raise forms.ValidationError(str(error)) from error
        if ms > limits.RULE_DURATION_MAX_MS:
            raise forms.ValidationError(f"At most {durations.spell(limits.RULE_DURATION_MAX_MS)}.")
        return ms


class ReceiversField(forms.CharField):
    """Receivers, separated by commas, spaces or line ends; each must belong to a notifier."""

    widget = forms.Textarea(attrs={"rows": 2})

    def clean(self, value: Any) -> tuple[str, ...]:
        receivers = tuple(dict.fromkeys(super().clean(value).replace(",", " ").split()))
        if len(receivers) > limits.RULE_RECEIVERS_MAX:
            raise forms.ValidationError(f"At most {limits.RULE_RECEIVERS_MAX} receivers.")
        for receiver in receivers:
            if kind_of(receiver) is None:
                raise forms.ValidationError(f"“{receiver}” is not a valid {receiver_hints()}.")
        return receivers


class ConditionForm(forms.Form):
    """The condition of a rule, as far as it is typed in."""

    comparator = forms.ChoiceField(choices=Rule.COMPARATORS, required=False, initial=">", label="Fires when it is")
    threshold = forms.FloatField(required=False, widget=forms.NumberInput(attrs={"step": "any"}))

    def condition(self) -> Condition:
        """Return the condition; while it is incomplete, the expression alone decides."""
        values = self.cleaned_data if self.is_valid() else {}
        return Condition(values.get("comparator") or NO_COMPARATOR, values.get("threshold") or 0.0)


class RuleForm(ConditionForm):
    """All fields of a rule. ``app`` and ``querier`` let the form try the expression before it is saved."""

    name = forms.CharField(max_length=limits.RULE_NAME_CHARS_MAX)
    expr = forms.CharField(
        label="Expression",
        max_length=limits.RULE_EXPR_CHARS_MAX,
        widget=forms.Textarea(attrs={"rows": 2, "spellcheck": "false", "autocomplete": "off"}),
        help_text="PromQL, for example cpu_usage_total or rate(net_bytes_recv[5m])",
    )
    recovery = forms.FloatField(
        required=False,
        widget=forms.NumberInput(attrs={"step": "any"}),
        label="Recovers at",
        help_text="While the rule fires, this replaces the threshold. Empty: the threshold itself.",
    )
    for_ms = DurationField(label="For", help_text="How long the condition must last: 90s, 5m, 1h30m")
    keep_firing_for_ms = DurationField(
        label="Keep firing for", help_text="How long the value must be good before it resolves"
    )
    missing = forms.ChoiceField(
        choices=Rule.MISSING,
        initial=MissingPolicy.HOLD,
        required=False,
        label="When a series has no data",
        help_text="Ended for lack of data is never reported as recovered",
    )
    hold_ms = DurationField(
        label="Hold",
        empty_ms=judging_limits.HOLD_MS,
        help_text="How long an alert keeps its state without data, at most 24h",
    )
    missing_for_ms = DurationField(
        label="Missing for",
        empty_ms=judging_limits.MISSING_FOR_MS,
        help_text="If missing data is an alert: how long it must be missing",
    )
    severity = forms.ChoiceField(choices=Severity.choices, initial=Severity.WARNING)
    receivers = ReceiversField(label="Receivers", help_text=f"One or more, each a {receiver_hints()}")
    enabled = forms.BooleanField(required=False, initial=True)

    def __init__(self, *args: Any, app: int, querier: Querier, at_ms: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._app, self._querier, self._at_ms = app, querier, at_ms

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        comparator, threshold = cleaned.get("comparator"), cleaned.get("threshold")
        recovery = cleaned.get("recovery")
        if comparator and threshold is None:
            self.add_error("threshold", "A comparison needs a threshold.")
        if recovery is not None and not recovery_is_sound(comparator or NO_COMPARATOR, threshold, recovery):
            self.add_error("recovery", "This must be on the good side of the threshold of a < or > comparison.")
        if cleaned.get("hold_ms", 0) > judging_limits.HOLD_MAX_MS:
            self.add_error("hold_ms", f"At most {durations.spell(judging_limits.HOLD_MAX_MS)}.")
        if expr := cleaned.get("expr"):
            result = check(self._app, expr, Condition(), at_ms=self._at_ms, querier=self._querier)
            if result.error:
                self.add_error("expr", result.error)
        return cleaned

    def draft(self, rule: Rule | None = None) -> Draft:
        """Return the draft of a valid form; what the form does not show stays as it is in ``rule``."""
        values = self.cleaned_data
        hidden_names = [field.name for field in fields(Draft) if field.name not in self.fields]
        hidden_values = {name: getattr(rule, name) for name in hidden_names} if rule else {}
        defaults = {"threshold": values["threshold"] or 0.0, "missing": values["missing"] or MissingPolicy.HOLD.value}
        return Draft(**{**hidden_values, **values, **defaults})


def initial_of(rule: Rule) -> dict[str, Any]:
    """Return the initial values of the form of an existing rule."""
    plain = {name: getattr(rule, name) for name in ("name", "expr", "comparator", "severity", "missing")}
    plain |= {"threshold": _number(rule.threshold), "recovery": _number(rule.recovery)}
    duration_fields = ("for_ms", "keep_firing_for_ms", "hold_ms", "missing_for_ms")
    durations_text = {name: durations.spell(getattr(rule, name)) for name in duration_fields}
    return {**plain, **durations_text, "enabled": rule.enabled, "receivers": ", ".join(rule.receivers)}


def _number(value: float | None) -> str:
    """Write all digits, without a final ``.0``."""
    return "" if value is None else repr(value).removesuffix(".0")


class ContactPointForm(forms.Form):
    """A contact point: its name and its receivers."""

    name = forms.CharField(max_length=120)
    receivers = ReceiversField(label="Receivers", help_text=f"One or more, each a {receiver_hints()}")


class SilenceForm(forms.Form):
    """A silence that begins now."""

    matchers = forms.CharField(
        max_length=telling_limits.MATCHERS_CHARS_MAX,
        widget=forms.TextInput(attrs={"spellcheck": "false", "autocomplete": "off"}),
        help_text='Labels of the alerts, for example host="web-1", alertname=~"Disk.*"',
    )
    duration_ms = DurationField(label="For", empty_ms=HOUR_MS, help_text="How long: 90s, 5m, 1h30m; an hour if empty")
    comment = forms.CharField(max_length=200, required=False)
