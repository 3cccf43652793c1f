"""The front door as a Django app: from the wire to the store."""

from django.apps import AppConfig


class IngestConfig(AppConfig):
    """See the module."""

    name = "ingest"
    default_auto_field = "django.db.models.BigAutoField"
