"""The URLs of the alerting pages."""

from django.urls import path

from alerts.pages import views

app_name = "alerts"
urlpatterns = [
    path("", views.rule_list, name="rules"),
    path("new", views.rule_new, name="new"),
    path("check", views.rule_check, name="check"),
    path("rules/<int:rule_id>", views.rule_page, name="rule"),
    path("rules/<int:rule_id>/edit", views.rule_edit, name="edit"),
    path("rules/<int:rule_id>/delete", views.rule_delete, name="delete"),
    path("mail", views.message_list, name="messages"),
    path("mail/<int:message_id>", views.message_page, name="message"),
    path("mail/<int:message_id>/retry", views.message_retry, name="retry"),
]
