"""The front door in the admin: recent rejections, to be read only."""

from typing import Any, ClassVar

from django.contrib import admin
from django.http import HttpRequest
from unfold.admin import ModelAdmin

from ingest.models import RejectedLine


@admin.register(RejectedLine)
class RejectedLineAdmin(ModelAdmin):  # type: ignore[misc]
    """What senders sent that was not taken, newest first."""

    list_display: ClassVar = ["app", "source", "line", "reason", "example"]
    list_filter: ClassVar = ["app"]
    search_fields: ClassVar = ["source", "reason", "example"]
    list_select_related: ClassVar = ["app"]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
