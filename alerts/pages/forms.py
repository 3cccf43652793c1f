"""The forms of contact points and silences."""

from django import forms

from alerts.notify.registry import receiver_hints
from alerts.pages.fields import DurationField, ReceiversField
from alerts.telling import limits as telling_limits
from spm.limits import HOUR_MS


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
