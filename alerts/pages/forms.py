"""The forms of contact points, silences and events."""

from django import forms

from alerts.notify.registry import receiver_hints
from alerts.pages.fields import DurationField, ReceiversField
from alerts.telling import limits as telling_limits
from spm.events import limits as event_limits
from spm.events.outbox import Draft
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


class EventForm(forms.Form):
    """An event that a person writes; it happens now."""

    kind = forms.ChoiceField(choices=[(each, each.capitalize()) for each in ("deploy", "config", "note")])
    text = forms.CharField(max_length=event_limits.TEXT_CHARS_MAX, label="What happened")
    link = forms.URLField(max_length=event_limits.LINK_CHARS_MAX, required=False, assume_scheme="https")

    def draft(self, *, author: str, now_ms: int) -> Draft:
        """Return the event."""
        return Draft(**self.cleaned_data, at_ms=now_ms, author=author)
