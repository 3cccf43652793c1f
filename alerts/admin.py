"""The operator's view of rules, history and outbox. Rules are changed on their own pages, where it is audited."""

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.admin import ModelAdmin

from alerts.models import Alert, AlertEvent, Outbox, Rule
from alerts.notify import outbox
from alerts.notify.text import time_text


class ReadOnly(ModelAdmin):  # type: ignore[misc]
    """Shows, and changes nothing."""

    def has_add_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False


@admin.register(Rule)
class RuleAdmin(ReadOnly):
    """Rules of all organisations."""

    list_display = ("name", "app", "severity", "enabled", "judged_up_to", "error")
    list_filter = ("enabled", "severity")
    search_fields = ("name", "expr")
    list_select_related = ("app",)

    @admin.display(description="judged up to", ordering="evaluated_ms")
    def judged_up_to(self, rule: Rule) -> str:
        return time_text(rule.evaluated_ms)


@admin.register(Alert)
class AlertAdmin(ReadOnly):
    """Where series stand."""

    list_display = ("rule", "labels", "state", "value", "since")
    list_filter = ("state",)
    list_select_related = ("rule",)

    @admin.display(ordering="since_ms")
    def since(self, alert: Alert) -> str:
        return time_text(alert.since_ms)


@admin.register(AlertEvent)
class AlertEventAdmin(ReadOnly):
    """What happened."""

    list_display = ("at", "rule", "labels", "before", "state", "value", "reason")
    list_filter = ("state",)
    list_select_related = ("rule",)

    @admin.display(ordering="at_ms")
    def at(self, event: AlertEvent) -> str:
        return time_text(event.at_ms)


@admin.register(Outbox)
class OutboxAdmin(ReadOnly):
    """Messages, and another chance for dead ones."""

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
