"""The rule's form: what people type, and the draft it becomes."""

from typing import Any

from django import forms
from django.core.validators import validate_email

from alerts import durations
from alerts.models import Rule, Severity
from alerts.pages.check import check
from alerts.readings import Ask
from alerts.rulebook import Draft
from alerts.rules import NO_COMPARATOR, Condition, recovery_is_sound
from spm import limits
from spm.errors import BadQuery


class DurationField(forms.CharField):
    """A duration as text on the page, milliseconds in the draft."""

    def clean(self, value: Any) -> int:
        try:
            ms = durations.read(super().clean(value))
        except BadQuery as error:
            raise forms.ValidationError(str(error)) from error
        if ms > limits.RULE_DURATION_MAX_MS:
            raise forms.ValidationError(f"At most {durations.spell(limits.RULE_DURATION_MAX_MS)}.")
        return ms


class ReceiversField(forms.CharField):
    """Mail addresses, separated by commas, blanks or line ends."""

    widget = forms.Textarea(attrs={"rows": 2})

    def clean(self, value: Any) -> tuple[str, ...]:
        addresses = tuple(dict.fromkeys(super().clean(value).replace(",", " ").split()))
        if len(addresses) > limits.RULE_RECEIVERS_MAX:
            raise forms.ValidationError(f"At most {limits.RULE_RECEIVERS_MAX} receivers.")
        for address in addresses:
            validate_email(address)
        return addresses


class ConditionForm(forms.Form):
    """What a value is judged by, as far as it is typed in."""

    comparator = forms.ChoiceField(choices=Rule.COMPARATORS, required=False, initial=">", label="Fires when it is")
    threshold = forms.FloatField(required=False, widget=forms.NumberInput(attrs={"step": "any"}))

    def condition(self) -> Condition:
        """The condition; while it is not complete, that of the expression's own word."""
        said = self.cleaned_data if self.is_valid() else {}
        return Condition(said.get("comparator") or NO_COMPARATOR, said.get("threshold") or 0.0)


class RuleForm(ConditionForm):
    """Everything a person says about a rule. ``app`` and ``ask`` let it try the expression before it is kept."""

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
        help_text="While it fires, this takes the threshold's place. Empty: the threshold itself.",
    )
    for_ms = DurationField(required=False, label="For", initial="1m", help_text="How long it must last: 90s, 5m, 1h30m")
    keep_firing_for_ms = DurationField(
        required=False, label="Keep firing for", help_text="How long it must be well again"
    )
    severity = forms.ChoiceField(choices=Severity.choices, initial=Severity.WARNING)
    receivers = ReceiversField(label="Mail to")
    enabled = forms.BooleanField(required=False, initial=True)

    def __init__(self, *args: Any, app: int, ask: Ask, at_ms: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._app, self._ask, self._at_ms = app, ask, at_ms

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        comparator, threshold = cleaned.get("comparator"), cleaned.get("threshold")
        recovery = cleaned.get("recovery")
        if comparator and threshold is None:
            self.add_error("threshold", "A comparison needs a threshold.")
        if recovery is not None and not recovery_is_sound(comparator or NO_COMPARATOR, threshold, recovery):
            self.add_error("recovery", "This must lie on the good side of the threshold of a < or > comparison.")
        if expr := cleaned.get("expr"):
            found = check(self._app, expr, Condition(), at_ms=self._at_ms, ask=self._ask)
            if found.error:
                self.add_error("expr", found.error)
        return cleaned

    def draft(self) -> Draft:
        """What a valid form says."""
        said = self.cleaned_data
        return Draft(**{**said, "threshold": said["threshold"] or 0.0})


def initial_of(rule: Rule) -> dict[str, Any]:
    """What the form of an existing rule shows at first."""
    same = {name: getattr(rule, name) for name in ("name", "expr", "comparator", "severity")}
    same |= {"threshold": _number(rule.threshold), "recovery": _number(rule.recovery)}
    spelled = {name: durations.spell(getattr(rule, name)) for name in ("for_ms", "keep_firing_for_ms")}
    return {**same, **spelled, "enabled": rule.enabled, "receivers": ", ".join(rule.receivers)}


def _number(value: float | None) -> str:
    """All digits, without those that say nothing."""
    return "" if value is None else repr(value).removesuffix(".0")
