"""Shows operators the rules, the history and the outbox. Rules change on their own pages, where this is audited."""

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.admin import ModelAdmin

from alerts.models import AlertEvent, Episode, Instance, Lane, Outbox, Rule
from alerts.notify import outbox
from alerts.notify.text import time_text


class ReadOnly(ModelAdmin):  # type: ignore[misc]
    """Forbids to add, change and delete rows."""

    def has_add_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False


@admin.register(Rule)
class RuleAdmin(ReadOnly):
    """The rules of all organisations."""

    list_display = ("name", "app", "severity", "enabled")
    list_filter = ("enabled", "severity")
    search_fields = ("name", "expr")
    list_select_related = ("app",)


@admin.register(Lane)
class LaneAdmin(ReadOnly):
    """How far each app is judged."""

    list_display = ("app", "evaluated_up_to", "seq", "waiting")
    list_select_related = ("app",)

    @admin.display(description="evaluated up to", ordering="position_ms")
    def evaluated_up_to(self, lane: Lane) -> str:
        return time_text(lane.position_ms)


@admin.register(Instance)
class InstanceAdmin(ReadOnly):
    """The instances that are not ok."""

    list_display = ("rule", "labels", "aspect", "phase", "value", "since", "detail")
    list_filter = ("phase", "aspect")
    list_select_related = ("rule",)

    @admin.display(ordering="since_ms")
    def since(self, instance: Instance) -> str:
        return time_text(instance.since_ms)


@admin.register(Episode)
class EpisodeAdmin(ReadOnly):
    """The episodes."""

    list_display = ("start", "rule", "labels", "aspect", "status", "end_reason", "revision")
    list_filter = ("status", "aspect")
    list_select_related = ("rule",)

    @admin.display(ordering="start_ms")
    def start(self, episode: Episode) -> str:
        return time_text(episode.start_ms)


@admin.register(AlertEvent)
class AlertEventAdmin(ReadOnly):
    """The changes of state."""

    list_display = ("at", "rule", "labels", "before", "state", "value", "reason")
    list_filter = ("state",)
    list_select_related = ("rule",)

    @admin.display(ordering="at_ms")
    def at(self, event: AlertEvent) -> str:
        return time_text(event.at_ms)


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
