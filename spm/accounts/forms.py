"""Forms of the admin: the one that issues a token, and what any form changes, for the audit log."""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from django import forms
from django.contrib.auth.models import User
from django.db.models import Model
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget

from spm.accounts import audit
from spm.accounts.models import App, Membership, Organisation, Token
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


def note_form(actor: User, form: "forms.ModelForm[Any]", verb: str) -> None:
    """Note what a form changed; an app's retention and quotas have the same entries as when a page changes them."""
    row, after = form.instance, fields_after(form)
    if not after and verb == "changed":
        return
    detail = {"before": fields_before(form), "after": after} if verb == "changed" else {"after": after}
    for organisation in _organisations_of(row, form.initial.get("organisation")):
        _record(actor, f"{row._meta.verbose_name} {verb}", row, organisation, detail)
    if isinstance(row, App) and verb == "changed":
        _note_app(actor, row, form, set(after))


def _note_app(actor: User, app: App, form: "forms.ModelForm[Any]", changed: set[str]) -> None:
    quotas: dict[str, Any] = {name: getattr(app, name) for name in ("series_max", "rate_max") if name in changed}
    if quotas:
        _record(actor, "change quotas", app, app.organisation, quotas)
    names = ("raw_days", "hour_days", "day_days")
    if changed & set(names):
        after = {name: getattr(app, name) for name in names}
        before = {name: form.initial.get(name) for name in names}
        _record(actor, "retention changed", app, app.organisation, {"before": before, "after": after})


def note_formset(actor: User, formset: "forms.BaseModelFormSet[Any, Any]") -> None:
    """Note what was changed in the rows that belong to another, and which were added and deleted."""
    for form in formset.initial_forms:
        if form in formset.deleted_forms:
            note_deletion(actor, form.instance)
        elif form.has_changed():
            note_form(actor, form, "changed")
    for form in formset.extra_forms:
        if form.has_changed() and form not in formset.deleted_forms:
            note_form(actor, form, "added")


def note_deletion(actor: User, row: Model) -> None:
    """Note that a row is deleted."""
    for organisation in _organisations_of(row):
        _record(actor, f"{row._meta.verbose_name} deleted", row, organisation, {})


def _organisations_of(row: Model, former: Any = None) -> Sequence[Organisation | None]:
    """The organisations whose log has what happens to a row, with the one that it left; none for the site's own."""
    if isinstance(row, Organisation):
        return [row]
    if isinstance(row, User):
        return list(Organisation.objects.filter(memberships__user=row)) or [None]
    if isinstance(row, (App, Membership)):
        left = Organisation.objects.filter(pk=former).exclude(pk=row.organisation_id) if former else ()
        return [row.organisation, *left]
    return [None]


def _record(actor: User, action: str, row: Model, organisation: Organisation | None, detail: dict[str, Any]) -> None:
    app = {"app": row.pk} if isinstance(row, App) else {}
    audit.record(action, str(row), actor=actor, organisation=organisation, detail={**app, **detail})
