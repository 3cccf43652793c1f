"""A page is one module and one line of the table: from there come its URL, its navigation entry and its tab."""

import importlib
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest
from django.http import HttpRequest, HttpResponse
from django.template import engines
from django.test import Client
from django.urls import clear_url_caches, reverse

from frontend.pages import registry
from frontend.pages.base import AppPage
from frontend.pages.registry import PAGES, Page
from spm.accounts.organisations.rights import Right
from tests.support.people import Tenant

URL_MODULES = ("frontend.urls", "spm.web.urls")
TEMPLATE = '{% extends "base.html" %}{% load navigation %}{% block content %}{% tabs %}Three spare disks{% endblock %}'


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
        Page("stock", "stock", Stock, title="Stock", tab="Disks"),
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


@pytest.mark.parametrize(
    ("path", "title"),
    [
        ("", "Home"),
        ("hosts/web-1", "Home"),
        ("agents", "Add data"),
        ("send/heartbeats", "Add data"),
        ("runs", "Corrections"),
        ("retention", "Corrections"),
        ("delivery/dead-letters", "Ingestion"),
    ],
)
def test_each_page_has_its_entry_in_the_navigation(desk: Client, alpha: Tenant, path: str, title: str) -> None:
    page = desk.get(f"/apps/{alpha.app.pk}/{path}").content.decode()
    navigation = page.partition('<nav aria-label="Main">')[2].partition("</nav>")[0]
    assert navigation.count("aria-current") == 1
    assert f'aria-current="page">{title}</a>' in navigation
