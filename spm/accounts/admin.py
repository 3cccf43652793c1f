"""The admin of accounts: organisations, people, apps, tokens, sources, the audit log.

A token's hash is never shown; its secret once, in a message after it was issued. Fields that the system writes (last
use, last seen, the log) are read-only. Acts go through ``services``, like those of the pages, or are noted in the audit
log by ``Audited``, with what was there before and after.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar, cast

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, User
from django.db import transaction
from django.db.models import Model, QuerySet
from django.forms import ModelForm
from django.http import HttpRequest
from unfold.admin import ModelAdmin, TabularInline
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from spm.accounts import audit
from spm.accounts.forms import TokenAdminForm, note_deletion, note_form, note_formset
from spm.accounts.logins.origins import address_of
from spm.accounts.models import App, AuditEntry, Membership, Organisation, Source, Token
from spm.accounts.services import delete_app, delete_organisation, issue_token, password_changed, revoke_token

admin.site.unregister(User)
admin.site.unregister(Group)


class ReadOnly(ModelAdmin):  # type: ignore[misc]  # unfold is untyped
    """Rows that the system writes; people can only read them."""

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


class Audited:
    """Rows that staff change: each act is noted, with the changed fields before and after, in its transaction."""

    def save_related(self, request: HttpRequest, form: "ModelForm[Any]", formsets: Iterable[Any], change: bool) -> None:
        """Save the rows that belong to this one, and note what changed in all of them."""
        super().save_related(request, form, formsets, change)  # type: ignore[misc]  # of ModelAdmin
        note_form(_who(request), form, "changed" if change else "added")
        for formset in formsets:
            note_formset(_who(request), formset)

    def delete_model(self, request: HttpRequest, obj: Model) -> None:
        """Delete a row, and note it."""
        note_deletion(_who(request), obj)
        super().delete_model(request, obj)  # type: ignore[misc]

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Delete rows, and note each."""
        with transaction.atomic():
            for each in queryset:
                note_deletion(_who(request), each)
            super().delete_queryset(request, queryset)  # type: ignore[misc]


class MembershipInline(TabularInline):  # type: ignore[misc]
    """The people of an organisation."""

    model = Membership
    extra = 0
    autocomplete_fields: ClassVar = ["user"]


class AppInline(TabularInline):  # type: ignore[misc]
    """The apps of an organisation."""

    model = App
    extra = 0
    can_delete = False
    show_change_link = True


@admin.register(Organisation)
class OrganisationAdmin(Audited, ModelAdmin):  # type: ignore[misc]
    """Organisations, with their people and apps."""

    list_display: ClassVar = ["name", "people", "app_names", "created", "going"]
    search_fields: ClassVar = ["name", "apps__name", "memberships__user__username"]
    readonly_fields: ClassVar = ["created", "going"]
    inlines: ClassVar = [MembershipInline, AppInline]

    actions: ClassVar = ["delete_with_data"]

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Refuse the plain deletion, which would leave the apps' data in the store: an action deletes all of it."""
        return False

    def has_erase_permission(self, request: HttpRequest) -> bool:
        """Whether the person may delete organisations at all."""
        return bool(request.user.has_perm("accounts.delete_organisation"))

    @admin.action(description="Delete with all apps and data, for good", permissions=["erase"])
    def delete_with_data(self, request: HttpRequest, queryset: QuerySet[Organisation]) -> None:
        """Delete organisations for everybody at once; their data and rows are deleted later."""
        organisations = list(queryset.filter(going=None))
        for organisation in organisations:
            delete_organisation(_who(request), organisation)
        self.message_user(
            request, f"{len(organisations)} organisations deleted. Their data is deleted within the hour."
        )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Organisation]:
        return cast("QuerySet[Organisation]", super().get_queryset(request).prefetch_related("apps", "memberships"))

    @admin.display(description="people")
    def people(self, organisation: Organisation) -> int:
        return len(organisation.memberships.all())

    @admin.display(description="apps")
    def app_names(self, organisation: Organisation) -> str:
        return ", ".join(app.name for app in organisation.apps.all())


@admin.register(Membership)
class MembershipAdmin(Audited, ModelAdmin):  # type: ignore[misc]
    """The roles of people in organisations."""

    list_display: ClassVar = ["user", "organisation", "role", "created"]
    list_filter: ClassVar = ["role"]
    list_select_related: ClassVar = ["user", "organisation"]
    search_fields: ClassVar = ["user__username", "organisation__name"]
    autocomplete_fields: ClassVar = ["user", "organisation"]
    readonly_fields: ClassVar = ["created"]


@admin.register(App)
class AppAdmin(Audited, ModelAdmin):  # type: ignore[misc]
    """Apps. Their number is part of the store's keys, so that nobody can choose it; an action deletes an app."""

    list_display: ClassVar = [
        "name",
        "id",
        "organisation",
        "raw_days",
        "hour_days",
        "day_days",
        "series_max",
        "rate_max",
        "created",
        "going",
    ]
    list_select_related: ClassVar = ["organisation"]
    list_filter: ClassVar = [("going", admin.EmptyFieldListFilter)]
    search_fields: ClassVar = ["name", "organisation__name", "=id"]
    autocomplete_fields: ClassVar = ["organisation"]
    readonly_fields: ClassVar = ["id", "created", "going"]
    actions: ClassVar = ["delete_with_data"]

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Refuse the plain deletion, which would leave the data in the store: an action deletes both."""
        return False

    def has_erase_permission(self, request: HttpRequest) -> bool:
        """Whether the person may delete apps at all."""
        return bool(request.user.has_perm("accounts.delete_app"))

    @admin.action(description="Delete with all data, for good", permissions=["erase"])
    def delete_with_data(self, request: HttpRequest, queryset: QuerySet[App]) -> None:
        """Delete apps for everybody at once; their data is deleted later."""
        apps = list(queryset.filter(going=None).select_related("organisation"))
        for app in apps:
            delete_app(_who(request), app)
        self.message_user(request, f"{len(apps)} apps deleted. Their data is deleted within the hour.")


@admin.register(Token)
class TokenAdmin(ModelAdmin):  # type: ignore[misc]
    """Tokens: issued here and shown once, revoked here, never shown again or edited."""

    form = TokenAdminForm
    list_display: ClassVar = ["name", "prefix", "app", "scopes", "created", "last_used", "revoked"]
    list_filter: ClassVar = [("revoked", admin.EmptyFieldListFilter), "scopes"]
    list_select_related: ClassVar = ["app"]
    search_fields: ClassVar = ["name", "prefix", "app__name", "app__organisation__name"]
    autocomplete_fields: ClassVar = ["app"]
    actions: ClassVar = ["revoke_tokens"]
    _shown: ClassVar = ["app", "name", "scopes", "prefix", "created", "last_used", "revoked"]

    def get_fields(self, request: HttpRequest, obj: Token | None = None) -> list[str]:
        """A form for a new token has app, name and scopes; an issued one shows its facts."""
        return self._shown if obj else ["app", "name", "scope_choice"]

    def get_readonly_fields(self, request: HttpRequest, obj: Token | None = None) -> list[str]:
        return self._shown if obj else []

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Whether the person may revoke tokens; one that was issued is never edited."""
        return obj is None and bool(request.user.has_perm("accounts.change_token"))

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Tokens are revoked and never deleted, so that the audit log stays readable."""
        return False

    def save_model(self, request: HttpRequest, obj: Token, form: "ModelForm[Token]", change: bool) -> None:
        """Issue the token, and show its secret once."""
        fields = form.cleaned_data
        token, secret = issue_token(_who(request), fields["app"], name=fields["name"], scopes=fields["scope_choice"])
        obj.pk, obj.prefix, obj.scopes = token.pk, token.prefix, token.scopes
        messages.warning(request, f"This is the only time the token is shown: {secret}")

    @admin.action(description="Revoke", permissions=["change"])
    def revoke_tokens(self, request: HttpRequest, queryset: QuerySet[Token]) -> None:
        """Revoke the selected tokens that are not revoked yet."""
        tokens = queryset.filter(revoked=None).select_related("app__organisation")
        for token in tokens:
            revoke_token(_who(request), token)
        self.message_user(request, f"{len(tokens)} tokens revoked. They stop working within five seconds.")


@admin.register(Source)
class SourceAdmin(ReadOnly):
    """The sources of all apps."""

    list_display: ClassVar = ["name", "app", "first_seen", "last_seen"]
    list_select_related: ClassVar = ["app"]
    search_fields: ClassVar = ["name", "app__name"]
    list_filter: ClassVar = ["app"]
    ordering: ClassVar = ["-last_seen"]


@admin.register(AuditEntry)
class AuditEntryAdmin(ReadOnly):
    """The audit log."""

    list_display: ClassVar = ["at", "actor_name", "action", "subject", "organisation", "address"]
    list_select_related: ClassVar = ["organisation"]
    list_filter: ClassVar = ["action", "organisation"]
    search_fields: ClassVar = ["actor_name", "action", "subject"]
    date_hierarchy = "at"

    @admin.display(description="address")
    def address(self, entry: AuditEntry) -> str:
        return str(entry.detail.get("address", ""))


@admin.register(User)
class UserAdmin(Audited, DjangoUserAdmin, ModelAdmin):  # type: ignore[misc,type-arg]
    """People. A password set here replaces the first one, and removes the file with it."""

    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    list_display = ["username", "email", "is_staff", "is_active", "last_login", "date_joined"]
    readonly_fields = ["last_login", "date_joined"]

    def log_change(self, request: HttpRequest, obj: User, message: Any) -> Any:
        """Log a change as Django does and in the audit log; a changed password also removes the file with the first."""
        if "password" in str(message).lower():
            password_changed(obj, Path(settings.SPM_DATA), address=address_of(request), actor=_who(request))
        return super().log_change(request, obj, message)


@admin.register(EmailAddress)
class EmailAddressAdmin(Audited, ModelAdmin):  # type: ignore[misc]
    """The addresses of people. One that is verified is a login, and gets the mail that sets a new password."""

    list_display: ClassVar = ["email", "user", "verified", "primary"]
    list_filter: ClassVar = ["verified", "primary"]
    list_select_related: ClassVar = ["user"]
    search_fields: ClassVar = ["email", "user__username"]
    autocomplete_fields: ClassVar = ["user"]


@admin.register(Authenticator)
class AuthenticatorAdmin(ReadOnly):
    """Second factors. Staff remove those of a person who has lost them; their secrets are never shown."""

    list_display: ClassVar = ["user", "type", "created_at", "last_used_at"]
    list_select_related: ClassVar = ["user"]
    fields: ClassVar = ["user", "type", "created_at", "last_used_at"]
    search_fields: ClassVar = ["user__username"]

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Whether the person may remove second factors."""
        return bool(request.user.has_perm("mfa.delete_authenticator"))

    def delete_model(self, request: HttpRequest, obj: Authenticator) -> None:
        """Remove a second factor, and note it in the audit log."""
        super().delete_model(request, obj)
        self._note(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Authenticator]) -> None:
        """Remove second factors, and note each."""
        removed = list(queryset)
        super().delete_queryset(request, queryset)
        for each in removed:
            self._note(request, each)

    def _note(self, request: HttpRequest, factor: Authenticator) -> None:
        detail = {"type": str(factor.type)}
        audit.record("second factor removed", str(factor.user), actor=_who(request), organisation=None, detail=detail)


@admin.register(Group)
class GroupAdmin(Audited, DjangoGroupAdmin, ModelAdmin):  # type: ignore[misc]
    """Groups of the admin's own permissions."""


def _who(request: HttpRequest) -> User:
    return cast(User, request.user)
