"""Shows operators notifications and the outbox. Here they set policies, maintenance windows and inhibitions.

A row that could not be read would stop the telling of its organisation, so forms refuse what ``decide`` refuses. After
each change the groups of the organisation are looked at again.
"""

from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.admin import ModelAdmin

from alerts.admin.rows import ReadOnly
from alerts.models import Outbox
from alerts.models.telling import Inhibition, MuteTiming, Notification, Policy, Silence
from alerts.notify import outbox
from alerts.notify.text import time_text
from alerts.telling.decide.matchers import read_matchers
from alerts.telling.decide.windows import check_timing
from alerts.telling.hook import mark_organisation
from spm.accounts import audit
from spm.clock import SystemClock
from spm.errors import BadQuery


class _Form(forms.ModelForm):  # type: ignore[type-arg]
    """Refuses matchers that select everything or nothing that can be read, and windows that never come."""

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        try:
            for name in ("matchers", "source", "target"):
                if name in values:
                    read_matchers(values[name])
            if "cron" in values and "duration_ms" in values and "zone" in values:
                check_timing(values["cron"], values["zone"], values["duration_ms"])
        except BadQuery as error:
            raise ValidationError(str(error)) from error
        self._check_names(values)
        self._check_organisation(values)
        return values

    def _check_names(self, values: dict[str, Any]) -> None:
        for name in ("group_by", "equal"):
            labels = values.get(name)
            if labels is not None and not (isinstance(labels, list) and all(isinstance(each, str) for each in labels)):
                raise ValidationError(f'{name} is a list of label names, such as ["host"]')

    def _check_organisation(self, values: dict[str, Any]) -> None:
        """Policies notify nobody of another organisation, and are no ring."""
        organisation, parent = values.get("organisation"), values.get("parent")
        point = values.get("contact_point")
        if any(
            each is not None and each.organisation_id != organisation.pk for each in (parent, point) if organisation
        ):
            raise ValidationError("the parent and the contact point belong to another organisation")
        while parent is not None:
            if parent.pk == self.instance.pk:
                raise ValidationError("a policy cannot be below itself")
            parent = parent.parent


class _Setting(ModelAdmin):  # type: ignore[misc]
    """A setting of an organisation: each change is audited, and its groups are looked at again."""

    form = _Form
    list_select_related = ("organisation",)

    def save_model(self, request: HttpRequest, obj: Any, form: object, change: bool) -> None:
        super().save_model(request, obj, form, change)
        self._note(request, obj, "write")

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        organisation = obj.organisation
        super().delete_model(request, obj)
        obj.organisation = organisation
        self._note(request, obj, "delete")

    def delete_queryset(self, request: HttpRequest, queryset: Any) -> None:
        for each in queryset:
            self.delete_model(request, each)

    def _note(self, request: HttpRequest, obj: Any, verb: str) -> None:
        action = f"{obj._meta.model_name}.{verb}"
        audit.record(action, str(obj), actor=request.user, organisation=obj.organisation)
        mark_organisation(obj.organisation_id, now_ms=SystemClock().now_ms())


@admin.register(Policy)
class PolicyAdmin(_Setting):
    """Which alerts go to which contact points, besides the receivers of their rules."""

    list_display = ("organisation", "position", "matchers", "contact_point", "parent")


@admin.register(MuteTiming)
class MuteTimingAdmin(_Setting):
    """Maintenance windows."""

    list_display = ("organisation", "name", "matchers", "cron", "zone")


@admin.register(Inhibition)
class InhibitionAdmin(_Setting):
    """Alerts that keep others from being told."""

    list_display = ("organisation", "source", "target", "equal")


@admin.register(Notification)
class NotificationAdmin(ReadOnly):
    """The notifications of all organisations."""

    list_display = ("key", "organisation", "receiver", "state", "attempts", "created", "answer")
    list_filter = ("state",)
    search_fields = ("key",)
    list_select_related = ("organisation", "receiver")

    @admin.display(ordering="created_ms")
    def created(self, row: Notification) -> str:
        return time_text(row.created_ms)


@admin.register(Silence)
class SilenceAdmin(ReadOnly):
    """The silences of all organisations."""

    list_display = ("organisation", "matchers", "comment", "created_by")
    list_select_related = ("organisation", "created_by")


@admin.register(Outbox)
class OutboxAdmin(ReadOnly):
    """The messages, with an action that tries dead ones again."""

    list_display = ("key", "app", "kind", "state", "attempts", "created", "error")
    list_filter = ("state", "kind")
    search_fields = ("key",)
    list_select_related = ("app",)
    actions = ("try_again",)

    @admin.display(ordering="created_ms")
    def created(self, message: Outbox) -> str:
        return time_text(message.created_ms)

    @admin.action(description="Try dead messages again")
    def try_again(self, request: HttpRequest, queryset: QuerySet[Outbox]) -> None:
        self.message_user(request, f"{outbox.revive(queryset)} messages will be tried again.")
