"""The front door as a Django app: from the wire to the store."""

from django.apps import AppConfig


class IngestConfig(AppConfig):
    """Protocols, acceptance and transport; the ring of recent rejections."""

    name = "ingest"
    default_auto_field = "django.db.models.BigAutoField"
