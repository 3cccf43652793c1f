"""The URLs of the alerting pages."""

from django.urls import path
from django.views.generic import RedirectView

from alerts.pages import events, noise, notifications, routing, rule_files, views
from alerts.pages.alert import active, incidents
from alerts.pages.alert import views as alert
from alerts.pages.editor import views as editor

app_name = "alerts"
urlpatterns = [
    path("", views.rule_list, name="rules"),
    path("active", active.active_list, name="active"),
    path("incidents", incidents.incident_list, name="incidents"),
    path("events", events.event_list, name="events"),
    path("<int:episode_id>", alert.alert_page, name="alert"),
    path("<int:episode_id>/take", alert.alert_take, name="alert-take"),
    path("<int:episode_id>/end", alert.alert_end, name="alert-end"),
    path("<int:episode_id>/note", alert.alert_note, name="alert-note"),
    path("new", editor.rule_new, name="new"),
    path("files", rule_files.file_list, name="files"),
    path("files/<str:name>", rule_files.file_download, name="file"),
    path("check", editor.rule_check, name="check"),
    path("try", editor.rule_try, name="try"),
    path("rules/<int:rule_id>", views.rule_page, name="rule"),
    path("rules/<int:rule_id>/edit", editor.rule_edit, name="edit"),
    path("rules/<int:rule_id>/delete", views.rule_delete, name="delete"),
    path("mail", RedirectView.as_view(pattern_name="alerts:notifications", query_string=True)),
    path("mail/<path:rest>", RedirectView.as_view(url="/alerts/notifications")),
    path("notifications", notifications.notification_list, name="notifications"),
    path("notifications/<int:notification_id>", notifications.notification_page, name="notification"),
    path("notifications/<int:notification_id>/retry", notifications.notification_retry, name="notification-retry"),
    path(
        "notifications/<int:notification_id>/acknowledge",
        notifications.notification_acknowledge,
        name="notification-acknowledge",
    ),
    path("contact-points", notifications.contact_point_write, name="contact-point"),
    path("contact-points/<int:point_id>/delete", notifications.contact_point_delete, name="contact-point-delete"),
    path("receivers/<int:receiver_id>/test", notifications.receiver_test, name="receiver-test"),
    path("contact-points/<int:point_id>/report", noise.report_want, name="report-want"),
    path("noise", noise.noise_report, name="noise"),
    path("policies", routing.policy_list, name="policies"),
    path("policies/<int:policy_id>", routing.policy_edit, name="policy"),
    path("policies/<int:policy_id>/delete", routing.policy_delete, name="policy-delete"),
    path("inhibitions", routing.inhibition_write, name="inhibition"),
    path("inhibitions/<int:inhibition_id>/delete", routing.inhibition_delete, name="inhibition-delete"),
    path("windows", routing.window_list, name="windows"),
    path("windows/<int:window_id>/delete", routing.window_delete, name="window-delete"),
    path("silences", notifications.silence_list, name="silences"),
    path("silences/preview", notifications.silence_preview, name="silence-preview"),
    path("silences/<int:silence_id>/end", notifications.silence_end, name="silence-end"),
]
