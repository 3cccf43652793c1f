"""The desk as a Django app: everything that speaks HTTP to people or programs."""

from django.apps import AppConfig


class FrontendConfig(AppConfig):
    """See the module."""

    name = "frontend"
    default_auto_field = "django.db.models.BigAutoField"
