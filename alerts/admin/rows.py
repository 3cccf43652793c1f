"""What the admin's pages of alerting share."""

from django.http import HttpRequest
from unfold.admin import ModelAdmin


class ReadOnly(ModelAdmin):  # type: ignore[misc]
    """Forbids to add, change and delete rows."""

    def has_add_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:
        return False
