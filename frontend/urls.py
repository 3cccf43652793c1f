"""The addresses of the pages people see. Everything about an app stands under its number."""

from django.urls import URLPattern, URLResolver, path

from frontend import agent_file, metrics_page
from frontend.pages import accounts, agents, charts, corrections, delivery, heartbeats, overview, retention, runs, send

app_name = "frontend"
urlpatterns: list[URLPattern | URLResolver] = [
    path("", overview.Home.as_view(), name="home"),
    path("agent.pyz", agent_file.agent_file, name="agent_file"),
    path("metrics", metrics_page.metrics, name="own_metrics"),
    path("login", accounts.Login.as_view(), name="login"),
    path("logout", accounts.Logout.as_view(), name="logout"),
    path("account/password", accounts.Password.as_view(), name="password"),
    path("apps/<int:app_id>/", overview.Overview.as_view(), name="overview"),
    path("apps/<int:app_id>/hosts", overview.HostsTable.as_view(), name="hosts"),
    path("apps/<int:app_id>/hosts/<path:host>", overview.Host.as_view(), name="host"),
    path("apps/<int:app_id>/system", overview.System.as_view(), name="system"),
    path("apps/<int:app_id>/chart", charts.Explore.as_view(), name="chart"),
    path("apps/<int:app_id>/corrections", corrections.Corrections.as_view(), name="corrections"),
    path("apps/<int:app_id>/corrections/<int:number>/undo", corrections.Undo.as_view(), name="undo"),
    path("apps/<int:app_id>/corrections/<int:number>/purge", corrections.Purge.as_view(), name="purge"),
    path("apps/<int:app_id>/delivery", delivery.Delivery.as_view(), name="delivery"),
    path("apps/<int:app_id>/delivery/hours", delivery.DeliveryHours.as_view(), name="delivery_hours"),
    path("apps/<int:app_id>/delivery/download", delivery.Download.as_view(), name="delivery_download"),
    path("apps/<int:app_id>/delivery/refused", delivery.Refused.as_view(), name="refused"),
    path("apps/<int:app_id>/delivery/letters", delivery.Letters.as_view(), name="letters"),
    path("apps/<int:app_id>/send/heartbeats", heartbeats.Heartbeats.as_view(), name="heartbeats"),
    path("apps/<int:app_id>/send/heartbeats/<int:number>/delete", heartbeats.Drop.as_view(), name="heartbeat_drop"),
    path("apps/<int:app_id>/retention", retention.Retention.as_view(), name="retention"),
    path("apps/<int:app_id>/retention/delete", retention.Delete.as_view(), name="delete"),
    path("apps/<int:app_id>/runs", runs.Runs.as_view(), name="runs"),
    path("apps/<int:app_id>/runs/table", runs.RunsTable.as_view(), name="runs_table"),
    path("apps/<int:app_id>/runs/<int:number>/rollback", runs.Rollback.as_view(), name="rollback"),
    path("apps/<int:app_id>/send", send.Send.as_view(), name="send"),
    path("apps/<int:app_id>/send/arrivals", send.Arrivals.as_view(), name="arrivals"),
    path("apps/<int:app_id>/agents", agents.Agents.as_view(), name="agents"),
    path("apps/<int:app_id>/agents/table", agents.AgentsTable.as_view(), name="agents_table"),
    path("apps/<int:app_id>/agents/settings", agents.Push.as_view(), name="agents_push"),
    path("apps/<int:app_id>/completeness", overview.Completeness.as_view(), name="completeness"),
    path("apps/<int:app_id>/tokens/<int:token_id>/revoke", send.Revoke.as_view(), name="revoke"),
]
