"""The URLs of the REST interface under ``/api/v1/``. Those that take data are in ``ingest``."""

from django.urls import URLPattern, URLResolver, path
from drf_spectacular.views import SpectacularAPIView

from frontend.api import (
    agents,
    balance,
    catalogue,
    chart_batches,
    charts,
    events,
    percentiles,
    rejections,
    retractions,
    runs,
    search,
)
from frontend.api.accounts import organisations, tokens
from frontend.api.alerts import acknowledgements, alert_rules, backtests, notifications, rule_files, silences

_ORGANISATION = "organisations/<int:organisation_id>"
_NOTIFICATION = f"{_ORGANISATION}/notifications/<int:number>"
_GROUP = "events/groups/<slug:name>"
app_name = "api"
urlpatterns: list[URLPattern | URLResolver] = [
    path("schema", SpectacularAPIView.as_view(), name="schema"),
    path("charts", charts.Charts.as_view(), name="charts"),
    path("charts/batch", chart_batches.ChartBatch.as_view(), name="chart_batch"),
    path("events", events.PostEvent.as_view(), name="events"),  # GET is answered on the event loop
    path("events/groups", events.Groups.as_view(), name="event_groups"),
    path(_GROUP, events.OneGroup.as_view(), name="event_group"),
    path(f"{_GROUP}/position", events.GroupPosition.as_view(), name="event_group_position"),
    path(f"{_GROUP}/consumers", events.Consumers.as_view(), name="event_consumers"),
    path(f"{_GROUP}/consumers/<str:consumer>", events.OneConsumer.as_view(), name="event_consumer"),
    path(f"{_GROUP}/consumers/<str:consumer>/fetch", events.Fetch.as_view(), name="event_fetch"),
    path(f"{_GROUP}/consumers/<str:consumer>/commit", events.Commit.as_view(), name="event_commit"),
    path("search", search.Search.as_view(), name="search"),
    path("percentiles", percentiles.PercentilesView.as_view(), name="percentiles"),
    path("apps", catalogue.Apps.as_view(), name="apps"),
    path("apps/<int:app_id>/sources", catalogue.Sources.as_view(), name="sources"),
    path("apps/<int:app_id>/completeness", catalogue.Completeness.as_view(), name="completeness"),
    path("apps/<int:app_id>/agents", agents.AppAgents.as_view(), name="app_agents"),
    path("apps/<int:app_id>/agents/settings", agents.PushedSettings.as_view(), name="agent_settings"),
    path("apps/<int:app_id>/agents/by-name/<path:agent>", agents.OneAgent.as_view(), name="agent"),
    path("agents", agents.Agents.as_view(), name="agents"),
    path("agents/heartbeat", agents.Heartbeat.as_view(), name="agent_heartbeat"),
    path("agents/version", agents.About.as_view(), name="agent_version"),
    path("apps/<int:app_id>/metrics", catalogue.Metrics.as_view(), name="metrics"),
    path("apps/<int:app_id>/labels", catalogue.Labels.as_view(), name="labels"),
    path("apps/<int:app_id>/balance", balance.Balance.as_view(), name="balance"),
    path("apps/<int:app_id>/balance/hours", balance.BalanceHours.as_view(), name="balance_hours"),
    path("apps/<int:app_id>/balance/rows", balance.BalanceRows.as_view(), name="balance_rows"),
    path("apps/<int:app_id>/account", balance.Balance.as_view(schema=None)),  # the old address of the balance
    path("apps/<int:app_id>/account/hours", balance.BalanceHours.as_view(schema=None)),
    path("apps/<int:app_id>/account/rows", balance.BalanceRows.as_view(schema=None)),
    path("apps/<int:app_id>/tokens", tokens.Tokens.as_view(), name="tokens"),
    path("apps/<int:app_id>/tokens/<int:number>", tokens.OneToken.as_view(), name="token"),
    path("apps/<int:app_id>/tokens/<int:number>/rotate", tokens.RotateToken.as_view(), name="token_rotate"),
    path("organisations", organisations.Organisations.as_view(), name="organisations"),
    path(_ORGANISATION, organisations.OneOrganisation.as_view(), name="organisation"),
    path(f"{_ORGANISATION}/members", organisations.Members.as_view(), name="members"),
    path(f"{_ORGANISATION}/members/<int:number>", organisations.OneMember.as_view(), name="member"),
    path(f"{_ORGANISATION}/invitations", organisations.Invitations.as_view(), name="invitations"),
    path(f"{_ORGANISATION}/invitations/<int:number>", organisations.OneInvitation.as_view(), name="invitation"),
    path(f"{_ORGANISATION}/audit", organisations.Audit.as_view(), name="audit"),
    path(f"{_ORGANISATION}/usage", organisations.Usage.as_view(), name="usage"),
    path(f"{_ORGANISATION}/silences", silences.Silences.as_view(), name="silences"),
    path(f"{_ORGANISATION}/silences/<int:number>", silences.OneSilence.as_view(), name="silence"),
    path(f"{_ORGANISATION}/notifications", notifications.Notifications.as_view(), name="notifications"),
    path(_NOTIFICATION, notifications.OneNotification.as_view(), name="notification"),
    path(f"{_NOTIFICATION}/retry", notifications.RetryNotification.as_view(), name="notification_retry"),
    path(f"{_ORGANISATION}/alerts/<int:number>/acknowledge", acknowledgements.Acknowledge.as_view(), name="take"),
    path(f"{_ORGANISATION}/receivers", notifications.Receivers.as_view(), name="receivers"),
    path(f"{_ORGANISATION}/receivers/<int:number>/test", notifications.ReceiverTest.as_view(), name="receiver_test"),
    path("apps/<int:app_id>/rejections", rejections.Rejections.as_view(), name="rejections"),
    path("apps/<int:app_id>/rules", alert_rules.Rules.as_view(), name="rules"),
    path("apps/<int:app_id>/rules/files", rule_files.RuleFiles.as_view(), name="rule_files"),
    path("apps/<int:app_id>/rules/files/<str:name>", rule_files.OneRuleFile.as_view(), name="rule_file"),
    path("apps/<int:app_id>/rules/<int:number>", alert_rules.OneRule.as_view(), name="rule"),
    path("apps/<int:app_id>/rules/<int:number>/alerts", alert_rules.RuleAlerts.as_view(), name="rule_alerts"),
    path("apps/<int:app_id>/rules/<int:number>/enable", alert_rules.switch(enabled=True).as_view(), name="rule_on"),
    path("apps/<int:app_id>/rules/<int:number>/disable", alert_rules.switch(enabled=False).as_view(), name="rule_off"),
    path("apps/<int:app_id>/runs", runs.Runs.as_view(), name="runs"),
    path("apps/<int:app_id>/runs/<int:number>", runs.OneRun.as_view(), name="run"),
    path("apps/<int:app_id>/runs/<int:number>/rollback", runs.Rollback.as_view(), name="rollback"),
    path("apps/<int:app_id>/corrections", runs.Corrections.as_view(), name="corrections"),
    path("apps/<int:app_id>/rules/backtest", backtests.Backtests.as_view(), name="backtest"),
    path("apps/<int:app_id>/retractions", retractions.Retractions.as_view(), name="retractions"),
    path("apps/<int:app_id>/retractions/preview", retractions.RetractionPreview.as_view(), name="preview"),
    path("apps/<int:app_id>/retractions/<int:number>/undo", retractions.Undo.as_view(), name="undo"),
    path("apps/<int:app_id>/retractions/<int:number>/purge", retractions.Purge.as_view(), name="purge"),
]
