"""The stream of events as a Django app."""

from django.apps import AppConfig


class EventsConfig(AppConfig):
    """Events, their order, and who reads them."""

    name = "spm.events"
    label = "events"
    default_auto_field = "django.db.models.BigAutoField"
