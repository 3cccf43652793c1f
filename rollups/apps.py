"""The back room as a Django app: runs that compact and aggregate."""

from django.apps import AppConfig


class RollupsConfig(AppConfig):
    """See the module."""

    name = "rollups"
    default_auto_field = "django.db.models.BigAutoField"
