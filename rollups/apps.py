"""The Django app of runs, which compact samples and aggregate them by hour and day."""

from django.apps import AppConfig


class RollupsConfig(AppConfig):
    name = "rollups"
    default_auto_field = "django.db.models.BigAutoField"
