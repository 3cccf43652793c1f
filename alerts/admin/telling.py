"""Shows operators notifications and the outbox. Here they set policies, maintenance windows and inhibitions.

What may be written, and what follows, says ``alerts.telling.settings``.
"""

from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.admin import ModelAdmin

from alerts.admin.rows import ReadOnly
from alerts.models import Outbox
from alerts.models.telling import Inhibition, MuteTiming, Notification, Policy, Silence
from alerts.notify import outbox
from alerts.notify.text import time_text
from alerts.pages.scope import person_of
from alerts.telling.settings import rows
from alerts.telling.settings.checks import check
from spm.clock import SystemClock
from spm.errors import BadQuery


class _Form(forms.ModelForm):  # type: ignore[type-arg]
    """Refuses what telling could not read."""

    def _post_clean(self) -> None:
        """Check the row that the values make; without an error of their own there is one."""
        super()._post_clean()  # type: ignore[misc]  # the stubs leave it out
        if not self.errors:
            try:
                check(self.instance)
            except BadQuery as error:
                self.add_error(None, str(error))


class _Setting(ModelAdmin):  # type: ignore[misc]
    """A setting of an organisation."""

    form = _Form
    list_select_related = ("organisation",)

    def save_model(self, request: HttpRequest, obj: Any, form: object, change: bool) -> None:
        rows.write(obj, {}, by=person_of(request), now_ms=SystemClock().now_ms())

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        rows.delete(obj, by=person_of(request), now_ms=SystemClock().now_ms())

    def delete_queryset(self, request: HttpRequest, queryset: Any) -> None:
        for each in queryset:
            self.delete_model(request, each)


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

    def has_revive_permission(self, request: HttpRequest) -> bool:
        """Who may change messages may have them tried again."""
        return bool(request.user.has_perm("alerts.change_outbox"))

    @admin.action(description="Try dead messages again", permissions=["revive"])
    def try_again(self, request: HttpRequest, queryset: QuerySet[Outbox]) -> None:
        self.message_user(request, f"{outbox.revive(queryset)} messages will be tried again.")
