"""The forms of policies, inhibitions and maintenance windows: what people type, as the values of a row.

What may be written says ``alerts.telling.settings``; a form only turns text into values.
"""

from typing import Any

from django import forms

from alerts import durations
from alerts.models.telling import ContactPoint, Policy
from alerts.pages.fields import DurationField
from alerts.telling import limits

_PLAIN = {"spellcheck": "false", "autocomplete": "off"}
_STEPS = tuple((f"after_{number}", f"point_{number}") for number in range(1, limits.ESCALATION_STEPS_MAX + 1))
_WAITS = ("wait_ms", "interval_ms", "repeat_ms")


class MatchersField(forms.CharField):
    """Matchers, as text."""

    def __init__(self, **kwargs: Any) -> None:
        widget = forms.TextInput(attrs={**_PLAIN, "placeholder": 'severity="critical", env=~"prod|stage"'})
        super().__init__(max_length=limits.MATCHERS_CHARS_MAX, widget=widget, **kwargs)


class LabelNamesField(forms.CharField):
    """Names of labels, separated by commas or spaces."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(required=False, max_length=2_500, widget=forms.TextInput(attrs=_PLAIN), **kwargs)

    def clean(self, value: Any) -> list[str]:
        return list(dict.fromkeys(super().clean(value).replace(",", " ").split()))


class PolicyForm(forms.Form):
    """A policy of an organisation, new or as it is in ``policy``."""

    matchers = MatchersField(
        label="Alerts", help_text='Their labels, with alertname, severity and app; alertname=~".+" is all'
    )
    contact_point = forms.ModelChoiceField(ContactPoint.objects.none(), label="Contact point", empty_label="choose one")
    group_by = LabelNamesField(label="Group by", help_text="Alerts that agree in these come together: alertname, host")
    parent = forms.ModelChoiceField(
        Policy.objects.none(), required=False, empty_label="none: it is a root", label="Below",
        help_text="Alerts that the policy above takes come here first",
    )  # fmt: skip
    position = forms.IntegerField(initial=0, min_value=0, max_value=10_000, help_text="Lower ones come first")
    goes_on = forms.BooleanField(required=False, label="Siblings after it may take the alert, too")
    wait_ms = DurationField(label="Wait", empty_ms=limits.GROUP_WAIT_MS, help_text="For further alerts of a new group")
    interval_ms = DurationField(
        label="Interval", empty_ms=limits.GROUP_INTERVAL_MS, help_text="Between two notifications of a group"
    )
    repeat_ms = DurationField(
        label="Repeat", empty_ms=limits.GROUP_REPEAT_MS, help_text="What nobody has acknowledged by then"
    )

    def __init__(self, data: Any = None, *, organisation: int, policy: Policy | None = None) -> None:
        super().__init__(data, initial=_initial(policy))
        others = Policy.objects.filter(organisation=organisation).select_related("contact_point")
        for name, rows in {
            "contact_point": ContactPoint.objects.filter(organisation=organisation),
            "parent": others.exclude(pk=policy.pk) if policy else others,
        }.items():
            field = self.fields[name]
            assert isinstance(field, forms.ModelChoiceField), "BUG: a choice of rows that is none"
            field.queryset = rows
        points = ContactPoint.objects.filter(organisation=organisation)
        for number, (after, point) in enumerate(_STEPS, 1):
            self.fields[after] = DurationField(label=f"Step {number} after", most_ms=limits.POLICY_SPAN_MS_MAX)
            self.fields[point] = forms.ModelChoiceField(
                points, required=False, label=f"Step {number} to", empty_label="nobody"
            )

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        for after, point in _STEPS:
            if {after, point} & set(self.errors):
                continue
            if cleaned[point] and not cleaned[after]:
                self.add_error(after, "After how long does this step come? For example 10m.")
            elif cleaned[after] and not cleaned[point]:
                self.add_error(point, "Who hears of it then? Choose a contact point, or empty the time.")
        return cleaned

    @property
    def steps(self) -> list[tuple[forms.BoundField, forms.BoundField]]:
        """The fields of the steps of escalation: after how long, and the contact point."""
        return [(self[after], self[point]) for after, point in _STEPS]

    @property
    def has_steps(self) -> bool:
        """Whether there is a step, or what was typed as one is wrong."""
        return any(point.value() or after.errors or point.errors for after, point in self.steps)

    def values(self) -> dict[str, Any]:
        """Return the values of the policy itself."""
        steps = {name for step in _STEPS for name in step}
        return {name: value for name, value in self.cleaned_data.items() if name not in steps}

    def escalation(self) -> list[tuple[int, int]] | None:
        """Return the steps, the earliest first; None if the fields were not sent: they stay as they are."""
        if not any(after in self.data for after, _ in _STEPS):
            return None
        steps = [(self.cleaned_data[after], self.cleaned_data[point]) for after, point in _STEPS]
        return sorted((after_ms, point.pk) for after_ms, point in steps if point)


class InhibitionForm(forms.Form):
    """An inhibition."""

    source = MatchersField(label="While these fire")
    target = MatchersField(label="these are not told")
    equal = LabelNamesField(label="where these labels agree", help_text="For example host; empty: wherever they are")


class WindowForm(forms.Form):
    """A maintenance window."""

    name = forms.CharField(max_length=120)
    matchers = MatchersField(label="Alerts")
    cron = forms.CharField(
        label="Begins", max_length=120, widget=forms.TextInput(attrs={**_PLAIN, "placeholder": "0 2 * * 6"}),
        help_text="Minute, hour, day, month, weekday: 0 2 * * 6 is Saturday at 02:00",
    )  # fmt: skip
    zone = forms.CharField(max_length=64, initial="UTC", label="Time zone", help_text="Such as Europe/Berlin")
    duration_ms = DurationField(label="Lasts", empty_ms=3_600_000, help_text="90s, 5m, 1h30m; an hour if empty")


def _initial(policy: Policy | None) -> dict[str, Any]:
    if policy is None:
        return {}
    values = {name: getattr(policy, name) for name in ("matchers", "contact_point", "parent", "position", "goes_on")}
    values |= {name: durations.spell(getattr(policy, name)) for name in _WAITS}
    for (after, point), step in zip(_STEPS, policy.escalation.all(), strict=False):
        values |= {after: durations.spell(step.after_ms), point: step.contact_point_id}
    return {**values, "group_by": ", ".join(policy.group_by)}
