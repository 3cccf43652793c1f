"""The URLs of the pages people see. The pages of an app come from the table in ``pages.registry``."""

from django.urls import URLPattern, URLResolver, path

from frontend import agent_file, metrics_page
from frontend.help import document_pages
from frontend.help import pages as help_pages
from frontend.pages import overview, registry
from frontend.pages.account import views
from frontend.pages.organisation import audit, export, joining, members, settings, tokens, usage

_ORGANISATION = "org/<int:organisation_id>/settings"
app_name = "frontend"
urlpatterns: list[URLPattern | URLResolver] = [
    path("", overview.Home.as_view(), name="home"),
    path("agent.pyz", agent_file.agent_file, name="agent_file"),
    path("agent.pyz.sha256", agent_file.agent_checksum, name="agent_checksum"),
    path("metrics", metrics_page.metrics, name="own_metrics"),
    path("login", views.Login.as_view(), name="login"),
    path("logout", views.Logout.as_view(), name="logout"),
    path("account/password", views.Password.as_view(), name="password"),
    path("invitations/<str:secret>", joining.InvitationLink.as_view(), name="invitation_link"),
    path("invitation", joining.Invitation.as_view(), name="invitation"),
    path("help", document_pages.Help.as_view(), name="help"),
    path("help/docs/<path:name>", document_pages.DocumentPage.as_view(), name="help_document"),
    path("help/files/<path:name>", document_pages.linked_file, name="help_file"),
    path("help/api", help_pages.Api.as_view(), name="help_api"),
    path("help/api/<slug:name>", help_pages.ApiOperation.as_view(), name="help_operation"),
    path("org/new", settings.NewOrganisation.as_view(), name="organisation_new"),
    path(f"{_ORGANISATION}/members", members.Members.as_view(), name="organisation_members"),
    path(f"{_ORGANISATION}/apps", settings.Apps.as_view(), name="organisation_apps"),
    path(f"{_ORGANISATION}/tokens", tokens.Tokens.as_view(), name="organisation_tokens"),
    path(f"{_ORGANISATION}/usage", usage.Usage.as_view(), name="organisation_usage"),
    path(f"{_ORGANISATION}/audit", audit.Audit.as_view(), name="organisation_audit"),
    path(f"{_ORGANISATION}/export", export.Export.as_view(), name="organisation_export"),
    path(f"{_ORGANISATION}/general", settings.General.as_view(), name="organisation_general"),
    *registry.url_patterns(registry.PAGES),
]
