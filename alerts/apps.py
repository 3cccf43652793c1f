"""The watchman as a Django app: rules, their states, and what is sent."""

from django.apps import AppConfig


class AlertsConfig(AppConfig):
    """See the module."""

    name = "alerts"
    default_auto_field = "django.db.models.BigAutoField"
