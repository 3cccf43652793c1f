"""The admin of runs, corrections, retractions and placements: read-only lists, and actions to roll back, undo, move."""

from typing import ClassVar

from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html_join
from django.utils.safestring import mark_safe
from unfold.admin import ModelAdmin, TabularInline

from rollups.models import Correction, RetractionRecord, Run, RunDay, Spreading, Trouble
from rollups.services import placement
from rollups.services import retractions as services_retractions
from rollups.services import runs as services_runs
from rollups.services.retractions import Actor
from spm.errors import SpmError


class _ReadOnly:
    """Rows that only the system writes."""

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Nobody may add rows."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Nobody may change rows."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Nobody may delete rows."""
        return False


class RunDayInline(_ReadOnly, TabularInline):  # type: ignore[misc]  # unfold is untyped
    """The days that a run changed."""

    model = RunDay
    extra = 0
    fields: ClassVar = ["app", "day", "published", "units", "samples", "size_bytes", "rolled_back"]


@admin.register(Trouble)
class TroubleAdmin(_ReadOnly, ModelAdmin):  # type: ignore[misc]
    """What cannot be done for an app or one of its days; everything else goes on."""

    list_display: ClassVar = ["app", "act", "day", "reason", "since", "at"]
    list_filter: ClassVar = ["act"]
    search_fields: ClassVar = ["reason", "app__name"]


@admin.register(Run)
class RunAdmin(_ReadOnly, ModelAdmin):  # type: ignore[misc]
    """Runs, newest first."""

    list_display: ClassVar = ["number", "kind", "executor", "state", "progress", "samples", "started", "took", "rate"]
    list_filter: ClassVar = ["state", "kind", "executor"]
    search_fields: ClassVar = ["=number", "message"]
    date_hierarchy = "started"
    inlines: ClassVar = [RunDayInline]
    actions: ClassVar = ["roll_back"]

    @admin.display(description="hour shards")
    def progress(self, run: Run) -> str:
        """The progress, and the remaining time."""
        eta_s = run.eta_s(services_runs.site().now())
        return f"{run.units} of {run.units_total}" + ("" if eta_s is None else f", {eta_s:.0f} s to go")

    @admin.display(description="seconds")
    def took(self, run: Run) -> str:
        """The duration."""
        return "" if run.seconds is None else f"{run.seconds:.1f}"

    @admin.display(description="samples/s")
    def rate(self, run: Run) -> str:
        """The speed."""
        return "" if run.samples_per_s is None else f"{run.samples_per_s:,.0f}"

    def has_roll_back_permission(self, request: HttpRequest) -> bool:
        """Who may change runs may roll one back."""
        return bool(request.user.has_perm("rollups.change_run"))

    @admin.action(description="Roll back (its data stays; the state before it returns)", permissions=["roll_back"])
    def roll_back(self, request: HttpRequest, runs: QuerySet[Run]) -> None:
        """Rolls the selected runs back, newest first."""
        actor = request.user if isinstance(request.user, User) else None
        for run in runs.order_by("-number"):
            try:
                done = services_runs.roll_back(services_runs.site(), run.number, actor, origin=_origin(request))
            except SpmError as error:
                messages.error(request, f"Run {run.number}: {error}")
            else:
                count = f"{sum(back.hour_shards for back in done)} hour shards of {len(done)} days"
                messages.success(request, f"Run {run.number} was rolled back in {count}.")


@admin.register(Correction)
class CorrectionAdmin(_ReadOnly, ModelAdmin):  # type: ignore[misc]
    """Hours that were aggregated again."""

    list_display: ClassVar = ["hour", "app", "cause", "samples", "run", "at"]
    list_filter: ClassVar = ["cause", "app"]
    list_select_related: ClassVar = ["app"]
    search_fields: ClassVar = ["app__name", "=run"]
    date_hierarchy = "hour"


@admin.register(RetractionRecord)
class RetractionRecordAdmin(_ReadOnly, ModelAdmin):  # type: ignore[misc]
    """Retractions, and what each hid when it was added. They are added on the app's page, and undone here or there."""

    list_display: ClassVar = ["number", "app", "samples", "series", "hours", "alerts", "undone_by", "purged_by"]
    list_filter: ClassVar = ["app"]
    list_select_related: ClassVar = ["app"]
    search_fields: ClassVar = ["=number", "app__name"]
    actions: ClassVar = ["undo"]

    def has_undo_permission(self, request: HttpRequest) -> bool:
        """Who may change retractions may undo one."""
        return bool(request.user.has_perm("rollups.change_retractionrecord"))

    @admin.action(description="Undo (what it hid counts again)", permissions=["undo"])
    def undo(self, request: HttpRequest, records: QuerySet[RetractionRecord]) -> None:
        """Undoes the selected retractions."""
        by = Actor(
            request.user.get_username(), _origin(request), request.user if isinstance(request.user, User) else None
        )
        for record in records.select_related("app__organisation"):
            try:
                services_retractions.undo(services_runs.site(), record.app, record.number, by)
            except SpmError as error:
                messages.error(request, f"Retraction {record.number}: {error}")
            else:
                messages.success(request, f"Retraction {record.number} is undone.")


@admin.register(Spreading)
class SpreadingAdmin(_ReadOnly, ModelAdmin):  # type: ignore[misc]
    """Apps with their placement: the newest epoch, the former ones, and the obstacles to closing them."""

    list_display: ClassVar = ["name", "organisation", "lies"]
    list_display_links: ClassVar = None
    list_select_related: ClassVar = ["organisation"]
    list_per_page = 50  # each is read from the store
    search_fields: ClassVar = ["name", "organisation__name"]
    actions: ClassVar = ["go_on"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Spreading]:
        """The apps that are not deleted."""
        apps: QuerySet[Spreading] = super().get_queryset(request).filter(going=None)
        return apps

    @admin.display(description="placement")
    def lies(self, app: Spreading) -> str:
        """The newest epoch, how many samples an hour go there, the former epochs, and why one is not closed yet."""
        try:
            summary = placement.summarise(services_runs.site(), app.pk)
        except SpmError as error:  # of one row, not of the page
            return f"cannot be read now: {error}"
        lines = [summary.newest, f"{summary.rate:,} samples an hour", *summary.former, *summary.obstacles]
        return format_html_join(mark_safe("<br>"), "{}", ((line,) for line in lines))

    def has_go_on_permission(self, request: HttpRequest) -> bool:
        """Who may change placements may continue a move."""
        return bool(request.user.has_perm("rollups.change_spreading"))

    @admin.action(description="Move the data of former epochs, and close them", permissions=["go_on"])
    def go_on(self, request: HttpRequest, apps: QuerySet[Spreading]) -> None:
        """Continues the move of the selected apps, each in a process of its own; they wait for each other."""
        for app in apps:
            placement.start_move(app.pk)
            messages.success(request, f"{app}: started. The list of runs shows the progress.")


def _origin(request: HttpRequest) -> str:
    return str(request.META.get("REMOTE_ADDR", ""))
