"""Ingest as a Django app: from the wire to the store."""

from django.apps import AppConfig


class IngestConfig(AppConfig):
    """Protocols, acceptance, transports and the worker; the ring of recent rejections."""

    name = "ingest"
    default_auto_field = "django.db.models.BigAutoField"
