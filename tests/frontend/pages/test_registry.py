"""A page is one module and one line of the table: from there come its URL, its navigation entry and its tab."""

import importlib
import re
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest
from django.http import HttpRequest, HttpResponse
from django.template import engines
from django.test import Client
from django.urls import clear_url_caches, reverse

from alerts.models import Episode, Rule
from alerts.models.telling import Acknowledgement
from frontend.pages import registry
from frontend.pages.base import AppPage
from frontend.pages.registry import PAGES, Page
from spm.accounts.models import App
from spm.accounts.organisations.rights import Right
from spm.clock import SystemClock
from tests.support.people import Tenant

URL_MODULES = ("frontend.urls", "spm.web.urls")
TEMPLATE = '{% extends "base.html" %}{% block content %}Three spare disks{% endblock %}'


class Stock(AppPage):
    """The module of a new page."""

    def get(self, request: HttpRequest, *args: object, **kwargs: object) -> HttpResponse:
        return HttpResponse(engines["django"].from_string(TEMPLATE).render(self.get_context_data(), request))


class Prices(Stock):
    """A page for owners."""

    right = Right.DELETE_APP


def reload_urls() -> None:
    modules: list[ModuleType] = [sys.modules[name] for name in URL_MODULES]
    for module in modules:
        importlib.reload(module)
    clear_url_caches()


@pytest.fixture
def stock(monkeypatch: pytest.MonkeyPatch, client: Client) -> Iterator[None]:
    """The lines of the new pages."""
    client.get("/login")  # the URLs are loaded
    lines = (
        Page("stock", "stock", Stock, title="Stock", tab="Disks", former=("shelf", "shelf/<int:row>")),
        Page("prices", "stock/prices", Prices, tab="Prices", section="stock"),
    )
    monkeypatch.setattr(registry, "PAGES", (*PAGES, *lines))
    reload_urls()
    yield
    monkeypatch.undo()
    reload_urls()


@pytest.mark.usefixtures("stock")
def test_a_line_of_the_table_makes_a_page_with_navigation_and_tabs(desk: Client, alpha: Tenant) -> None:
    address = reverse("frontend:stock", args=[alpha.app.pk])
    page = desk.get(address).content.decode()
    assert "Three spare disks" in page
    assert f'<a href="{address}" aria-current="page">Stock</a>' in page
    assert f'<a href="{address}" aria-current="page">Disks</a>' in page
    assert f'<a href="{address}/prices">Prices</a>' in page


@pytest.mark.usefixtures("stock")
def test_a_new_page_is_protected_like_the_others(client: Client, desk: Client, alpha: Tenant, beta: Tenant) -> None:
    assert desk.get(f"/apps/{beta.app.pk}/stock").status_code == 404
    client.force_login(alpha.viewer)
    assert client.get(f"/apps/{alpha.app.pk}/stock/prices").status_code == 403
    assert "Prices" not in client.get(f"/apps/{alpha.app.pk}/stock").content.decode()


@pytest.mark.usefixtures("stock")
def test_a_page_of_a_section_marks_the_section_in_the_navigation(desk: Client, alpha: Tenant) -> None:
    page = desk.get(f"/apps/{alpha.app.pk}/stock/prices").content.decode()
    assert f'<a href="/apps/{alpha.app.pk}/stock" aria-current="page">Stock</a>' in page
    assert '" aria-current="page">Prices</a>' in page


def test_each_section_of_the_table_exists() -> None:
    titles = {page.name for page in PAGES if page.title}
    assert {page.section for page in PAGES if page.section} <= titles


@pytest.mark.usefixtures("stock")
@pytest.mark.parametrize("method", ["get", "head"])
def test_an_old_address_leads_to_the_page_for_good_and_keeps_its_query(
    client: Client, alpha: Tenant, method: str
) -> None:
    answer = getattr(client, method)(f"/apps/{alpha.app.pk}/shelf?range=1h&expr=a%2Bb")
    assert (answer.status_code, answer["Location"]) == (301, f"/apps/{alpha.app.pk}/stock?range=1h&expr=a%2Bb")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("chart", "explore"),
        ("send", "add-data"),
        ("send/heartbeats", "heartbeats"),
        ("agents", "data/sources"),
        ("delivery", "data/ingestion"),
        ("delivery/refused", "data/rejected"),
        ("delivery/letters", "data/dead-letters"),
        ("corrections", "data/corrections"),
        ("corrections/7/purge", "data/corrections/7/purge"),
        ("runs", "data/rollups"),
        ("retention", "data/retention"),
    ],
)
def test_addresses_that_people_have_kept_still_lead_to_their_pages(client: Client, old: str, new: str) -> None:
    assert client.get(f"/apps/3/{old}")["Location"] == f"/apps/3/{new}"


def test_each_entry_of_the_navigation_leads_to_a_page_of_the_same_app(desk: Client, alpha: Tenant) -> None:
    second = App.objects.create(organisation=alpha.organisation, name="Second")
    page = desk.get(f"/apps/{second.pk}/").content.decode()
    links = re.findall('href="([^"]+)"', page.partition('<nav aria-label="Main">')[2].partition("</nav>")[0])
    assert len(links) >= 5
    assert [
        link for link in links if f"/apps/{second.pk}/" not in link and not link.endswith(f"?app={second.pk}")
    ] == []


def test_alerts_that_nobody_has_taken_are_counted_in_the_navigation(desk: Client, alpha: Tenant) -> None:
    now_ms = SystemClock().now_ms()
    rule = Rule.objects.create(app=alpha.app, name="CPU", expr="x", created_ms=1, changed_ms=1)
    times = {"start_ms": now_ms, "created_ms": now_ms, "changed_ms": now_ms}
    for number in range(3):
        episode = Episode.objects.create(rule=rule, fingerprint=str(number), labels={}, severity="warning", **times)
    assert '<span class="count" title="3 firing' in desk.get(f"/apps/{alpha.app.pk}/").content.decode()
    Acknowledgement.objects.create(episode=episode, by=alpha.owner, at_ms=now_ms, until_ms=now_ms + 60_000)
    assert '<span class="count" title="2 firing' in desk.get(f"/apps/{alpha.app.pk}/").content.decode()


@pytest.mark.parametrize(
    ("chosen", "html"), [("dark", ' data-theme="dark"'), ("light", ' data-theme="light"'), ("", "")]
)
def test_a_page_comes_in_the_theme_that_its_browser_has_chosen(
    client: Client, db: None, chosen: str, html: str
) -> None:
    client.cookies["theme"] = chosen
    assert f'<html lang="en"{html}>' in client.get("/login").content.decode()


def test_a_theme_that_does_not_exist_is_the_system_s(client: Client, db: None) -> None:
    client.cookies["theme"] = '"><script>'
    assert '<html lang="en">' in client.get("/login").content.decode()


@pytest.mark.parametrize(
    ("path", "title"),
    [
        ("", "Home"),
        ("hosts/web-1", "Hosts"),
        ("data/sources", "Data"),
        ("heartbeats", "Alerts"),
        ("data/rollups", "Data"),
        ("data/retention", "Data"),
        ("data/dead-letters", "Data"),
    ],
)
def test_each_page_has_its_entry_in_the_navigation(desk: Client, alpha: Tenant, path: str, title: str) -> None:
    page = desk.get(f"/apps/{alpha.app.pk}/{path}").content.decode()
    navigation = page.partition('<nav aria-label="Main">')[2].partition("</nav>")[0]
    assert re.search(f'aria-current="page"[^>]*>{title}</a>', navigation)
    assert set(re.findall(r'aria-current="page"[^>]*>(\w+)', navigation)) == {title}
