"""The URLs of Alertmanager's API, under ``/api/v2/``."""

from django.urls import path

from frontend.api.alertmanager import about, alerts, silences

app_name = "alertmanager"
urlpatterns = [
    path("status", about.AlertmanagerStatus.as_view(), name="status"),
    path("receivers", about.AlertmanagerReceivers.as_view(), name="receivers"),
    path("alerts", alerts.Alerts.as_view(), name="alerts"),
    path("alerts/groups", alerts.AlertGroups.as_view(), name="groups"),
    path("silences", silences.AlertmanagerSilences.as_view(), name="silences"),
    path("silence/<str:silence>", silences.AlertmanagerSilence.as_view(), name="silence"),
]
