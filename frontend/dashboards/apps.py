"""Dashboards as a Django app."""

from django.apps import AppConfig


class DashboardsConfig(AppConfig):
    """Dashboards of apps, and every version that was saved of them."""

    name = "frontend.dashboards"
    label = "dashboards"
    default_auto_field = "django.db.models.BigAutoField"
