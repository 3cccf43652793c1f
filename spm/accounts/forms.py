"""The form by which the admin issues a token."""

from typing import ClassVar

from django import forms
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget

from spm.accounts.models import Token
from spm.accounts.tokens import SCOPES


class TokenAdminForm(forms.ModelForm):  # type: ignore[type-arg]  # cannot be given one at run time
    """App, name, and one or more scopes."""

    scope_choice = forms.MultipleChoiceField(
        label="May",
        choices=[(scope, scope) for scope in SCOPES],
        initial=["ingest"],
        widget=UnfoldAdminCheckboxSelectMultipleWidget,
    )

    class Meta:
        model = Token
        fields: ClassVar = ["app", "name"]
