"""The forms of the desk's own pages."""

from typing import ClassVar

from django import forms

USES: dict[str, tuple[str, ...]] = {"ingest": ("ingest",), "read": ("read",), "both": ("ingest", "read")}


class TokenForm(forms.Form):
    """A token's name and what it is for."""

    LABELS: ClassVar = [("ingest", "Send data"), ("read", "Read data"), ("both", "Send and read")]

    name = forms.CharField(max_length=120, initial="My data", help_text="Where it is used, for your own memory.")
    use = forms.ChoiceField(choices=LABELS, initial="ingest", label="May")

    @property
    def scopes(self) -> tuple[str, ...]:
        """The scopes of what was chosen."""
        return USES[self.cleaned_data["use"]]
