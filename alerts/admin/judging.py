"""Shows operators the rules and their history. Rules change on their own pages, where this is audited."""

from django.contrib import admin

from alerts.admin.rows import ReadOnly
from alerts.models import AlertEvent, Episode, Instance, Lane, Rule
from alerts.notify.text import time_text


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
