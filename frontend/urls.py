"""The URLs of the pages people see. The pages of an app come from the table in ``pages.registry``."""

from django.urls import URLPattern, URLResolver, path

from frontend import agent_file, metrics_page
from frontend.pages import overview, registry
from frontend.pages.account import views

app_name = "frontend"
urlpatterns: list[URLPattern | URLResolver] = [
    path("", overview.Home.as_view(), name="home"),
    path("agent.pyz", agent_file.agent_file, name="agent_file"),
    path("metrics", metrics_page.metrics, name="own_metrics"),
    path("login", views.Login.as_view(), name="login"),
    path("logout", views.Logout.as_view(), name="logout"),
    path("account/password", views.Password.as_view(), name="password"),
    *registry.url_patterns(registry.PAGES),
]
