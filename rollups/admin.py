"""The admin of runs, corrections and distributions: lists for looking, and the actions that roll back, undo, go on."""

from typing import ClassVar

from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html_join
from django.utils.safestring import mark_safe
from unfold.admin import ModelAdmin, TabularInline

from rollups.models import Correction, RetractionRecord, Run, RunDay, Spreading
from rollups.services import placement
from rollups.services import retractions as services_retractions
from rollups.services import runs as services_runs
from rollups.services.retractions import Actor
from spm.errors import SpmError


class _LookOnly:
    """Rows the system writes; people only look."""

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Nobody adds."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Nobody changes."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Nobody deletes."""
        return False


class RunDayInline(_LookOnly, TabularInline):  # type: ignore[misc]  # unfold is untyped
    """The days a run touched."""

    model = RunDay
    extra = 0
    fields: ClassVar = ["app", "day", "flipped", "units", "samples", "size_bytes", "rolled_back"]


@admin.register(Run)
class RunAdmin(_LookOnly, ModelAdmin):  # type: ignore[misc]
    """Runs, newest first."""

    list_display: ClassVar = ["number", "kind", "executor", "state", "progress", "samples", "started", "took", "rate"]
    list_filter: ClassVar = ["state", "kind", "executor"]
    search_fields: ClassVar = ["=number", "message"]
    date_hierarchy = "started"
    inlines: ClassVar = [RunDayInline]
    actions: ClassVar = ["roll_back"]

    @admin.display(description="units")
    def progress(self, run: Run) -> str:
        """How far it is, and how much longer it takes."""
        eta_s = run.eta_s(services_runs.site().now())
        return f"{run.units} of {run.units_total}" + ("" if eta_s is None else f", {eta_s:.0f} s to go")

    @admin.display(description="seconds")
    def took(self, run: Run) -> str:
        """How long it took."""
        return "" if run.seconds is None else f"{run.seconds:.1f}"

    @admin.display(description="samples/s")
    def rate(self, run: Run) -> str:
        """How fast it was."""
        return "" if run.samples_per_s is None else f"{run.samples_per_s:,.0f}"

    def has_roll_back_permission(self, request: HttpRequest) -> bool:
        """Who may change runs may take one back."""
        return bool(request.user.has_perm("rollups.change_run"))

    @admin.action(description="Roll back (its data stays; the state before it returns)", permissions=["roll_back"])
    def roll_back(self, request: HttpRequest, runs: QuerySet[Run]) -> None:
        """Take the chosen runs back, newest first."""
        actor = request.user if isinstance(request.user, User) else None
        for run in runs.order_by("-number"):
            try:
                done = services_runs.take_back(services_runs.site(), run.number, actor, origin=_origin(request))
            except SpmError as error:
                messages.error(request, f"Run {run.number}: {error}")
            else:
                units = sum(back.units for back in done)
                messages.success(request, f"Run {run.number} was rolled back in {units} units of {len(done)} days.")


@admin.register(Correction)
class CorrectionAdmin(_LookOnly, ModelAdmin):  # type: ignore[misc]
    """Hours that were built again."""

    list_display: ClassVar = ["hour", "app", "cause", "samples", "run", "at"]
    list_filter: ClassVar = ["cause", "app"]
    list_select_related: ClassVar = ["app"]
    search_fields: ClassVar = ["app__name", "=run"]
    date_hierarchy = "hour"


@admin.register(RetractionRecord)
class RetractionRecordAdmin(_LookOnly, ModelAdmin):  # type: ignore[misc]
    """Retractions: what each hid when it was made. Made on the app's own page; ended here or there."""

    list_display: ClassVar = ["number", "app", "samples", "series", "hours", "alerts", "undone_by", "purged_by"]
    list_filter: ClassVar = ["app"]
    list_select_related: ClassVar = ["app"]
    search_fields: ClassVar = ["=number", "app__name"]
    actions: ClassVar = ["undo"]

    def has_undo_permission(self, request: HttpRequest) -> bool:
        """Who may change retractions may end one."""
        return bool(request.user.has_perm("rollups.change_retractionrecord"))

    @admin.action(description="Undo (what it hid counts again)", permissions=["undo"])
    def undo(self, request: HttpRequest, records: QuerySet[RetractionRecord]) -> None:
        """End the chosen ones."""
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
class SpreadingAdmin(_LookOnly, ModelAdmin):  # type: ignore[misc]
    """Apps by the shards they lie in: the newest epoch, those before it, and what is in the way of closing them."""

    list_display: ClassVar = ["name", "organisation", "lies"]
    list_display_links: ClassVar = None
    list_select_related: ClassVar = ["organisation"]
    list_per_page = 50  # each is read from the store
    search_fields: ClassVar = ["name", "organisation__name"]
    actions: ClassVar = ["go_on"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Spreading]:
        """Apps that are there."""
        found: QuerySet[Spreading] = super().get_queryset(request).filter(going=None)
        return found

    @admin.display(description="lies by")
    def lies(self, app: Spreading) -> str:
        """The newest epoch, how many samples an hour go there, the epochs before, and why one is not closed yet."""
        try:
            shown = placement.shown(services_runs.site(), app.pk)
        except SpmError as error:  # of one row, not of the page
            return f"cannot be read now: {error}"
        lines = [shown.newest, f"{shown.rate:,} samples an hour", *shown.former, *shown.waits]
        return format_html_join(mark_safe("<br>"), "{}", ((line,) for line in lines))

    def has_go_on_permission(self, request: HttpRequest) -> bool:
        """Who may change distributions may let a move go on."""
        return bool(request.user.has_perm("rollups.change_spreading"))

    @admin.action(description="Move what lies by former epochs, and close them", permissions=["go_on"])
    def go_on(self, request: HttpRequest, apps: QuerySet[Spreading]) -> None:
        """Start it for the chosen ones, each in a process of its own; they wait for each other."""
        for app in apps:
            placement.begin(app.pk)
            messages.success(request, f"{app}: begun. The list of runs shows how far it is.")


def _origin(request: HttpRequest) -> str:
    return str(request.META.get("REMOTE_ADDR", ""))
