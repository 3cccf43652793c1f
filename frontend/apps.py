"""Registers the frontend as a Django app: pages and interfaces over HTTP."""

from django.apps import AppConfig


class FrontendConfig(AppConfig):
    name = "frontend"
    default_auto_field = "django.db.models.BigAutoField"
