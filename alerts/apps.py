"""Registers alerting as a Django app: rules, series states and messages."""

from django.apps import AppConfig


class AlertsConfig(AppConfig):
    name = "alerts"
    default_auto_field = "django.db.models.BigAutoField"
