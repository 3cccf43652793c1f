"""Forms of the admin: the one that issues a token, and what any form changes, for the audit log."""

from collections.abc import Iterator
from typing import Any, ClassVar

from django import forms
from django.db.models import Model
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


def fields_before(form: "forms.ModelForm[Any]") -> dict[str, Any]:
    """Return the values, as texts and numbers, that the changed fields of a form had."""
    return {name: _plain(_stored(form, name)) for name in _changed(form)}


def fields_after(form: "forms.ModelForm[Any]") -> dict[str, Any]:
    """Return the values, as texts and numbers, that the changed fields of a form have now; no password."""
    return {name: _plain(form.cleaned_data.get(name)) for name in _changed(form)}


def _changed(form: "forms.ModelForm[Any]") -> Iterator[str]:
    return (name for name in form.changed_data if "password" not in name)


def _stored(form: "forms.ModelForm[Any]", name: str) -> Any:
    """The initial value of a field; of one that chooses a row by its number, the row, if there is one."""
    field = form.fields[name]
    value = form.get_initial_for_field(field, name)
    if isinstance(field, forms.ModelChoiceField) and field.queryset is not None and isinstance(value, int):
        return field.queryset.filter(pk=value).first()
    return value


def _plain(value: Any) -> Any:
    """The value as JSON takes it; a row is its text and number."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, Model):
        return f"{value} ({value.pk})"
    if hasattr(value, "__iter__"):
        return sorted(str(_plain(each)) for each in value)
    return str(value)
