"""The pages of dashboards: create, arrange, edit, conflict, import, delete; nothing of another tenant."""

from typing import Any

import orjson
import pytest
from django.test import Client

from frontend.dashboards import storage
from frontend.dashboards.limits import DOCUMENT_BYTES_MAX
from frontend.dashboards.models import Dashboard
from spm.clock import SystemClock
from tests.frontend.dashboards.documents import document
from tests.support import sample_app
from tests.support.people import Tenant

BASE = document({"title": "CPU", "queries": [{"expr": "cpu_usage_total"}]}, {"title": "Memory", "y": 8})


@pytest.fixture
def dashboard(alpha: Tenant) -> Dashboard:
    return storage.create(alpha.app, BASE, storage.Author(alpha.owner, 1_000))


@pytest.fixture
def at(alpha: Tenant, dashboard: Dashboard) -> str:
    return f"/apps/{alpha.app.pk}/dashboards/{dashboard.uid}"


def places(*panels: dict[str, int]) -> str:
    return orjson.dumps([{"x": 0, "y": 0, "w": 12, "h": 8, **each} for each in panels]).decode()


def test_a_new_dashboard_leads_to_the_editor_of_its_first_panel(desk: Client, alpha: Tenant) -> None:
    answer = desk.post(f"/apps/{alpha.app.pk}/dashboards", {"title": "Shop"})
    made_one = Dashboard.objects.get()
    assert answer["Location"] == f"/apps/{alpha.app.pk}/dashboards/{made_one.uid}/panels/1"
    assert desk.post(f"/apps/{alpha.app.pk}/dashboards", {"title": " "}).status_code == 400


def test_the_editor_moves_copies_and_removes_panels(desk: Client, dashboard: Dashboard, at: str) -> None:
    layout = places({"number": 1, "x": 4}, {"number": 3, "copy_of": 1, "y": 20})
    assert desk.post(f"{at}/edit", {"version": "1", "layout": layout, "note": "tidied"}).status_code == 302
    dashboard.refresh_from_db()
    panels = storage.document_of(dashboard).panels
    assert [(each.number, each.title, each.x, each.y) for each in panels] == [(1, "CPU", 4, 0), (3, "CPU", 0, 20)]


def test_adding_a_panel_keeps_what_was_moved_before(desk: Client, dashboard: Dashboard, at: str) -> None:
    layout = places({"number": 1, "x": 4}, {"number": 2, "y": 8})
    answer = desk.post(f"{at}/edit", {"version": "1", "layout": layout, "act": "add"})
    assert answer["Location"].endswith("/panels/3")
    dashboard.refresh_from_db()
    assert [(each.x, each.y) for each in storage.document_of(dashboard).panels] == [(4, 0), (0, 8), (0, 16)]


def test_a_panel_is_added_from_the_page_that_shows_the_dashboard(desk: Client, dashboard: Dashboard, at: str) -> None:
    before = storage.document_of(dashboard).panels
    page = desk.get(at).content.decode()
    assert f'action="{at}/edit"' in page
    answer = desk.post(f"{at}/edit", {"version": "1", "act": "add"})
    assert answer["Location"].endswith("/panels/3")
    dashboard.refresh_from_db()
    assert storage.document_of(dashboard).panels[:-1] == before


@pytest.mark.parametrize("layout", ["", "{", "{}", "[5]", '[{"number": 1, "x": 99, "y": 0, "w": 12, "h": 8}]'])
def test_places_that_are_missing_or_wrong_change_nothing(desk: Client, at: str, layout: str) -> None:
    assert desk.post(f"{at}/edit", {"version": "1", "layout": layout}).status_code == 400
    assert Dashboard.objects.get().version == 1


def test_places_that_name_no_panel_are_left_out(desk: Client, at: str, dashboard: Dashboard) -> None:
    desk.post(f"{at}/edit", {"version": "1", "layout": '[{"number": []}, {"number": 9}, {"copy_of": {}}]'})
    dashboard.refresh_from_db()
    assert storage.document_of(dashboard).panels == ()


def test_a_conflict_is_said_beside_the_form_that_keeps_its_input(desk: Client, at: str) -> None:
    form = {"title": "Mine", "expr": ["up"], "legend": [""], "kind": "stat", "version": "1"}
    assert desk.post(f"{at}/panels/1", form).status_code == 302
    answer = desk.post(f"{at}/panels/1", {**form, "title": "Late"})
    assert answer.status_code == 409
    assert b"changed the same: panel" in answer.content
    assert b'value="Late"' in answer.content


def test_json_that_conflicts_is_kept_with_the_version_it_started_from(desk: Client, at: str) -> None:
    form = {"version": "1", "document": '{"title": "Mine"}'}
    assert desk.post(f"{at}/settings", {**form, "document": '{"title": "Theirs"}'}).status_code == 302
    answer = desk.post(f"{at}/settings", form)
    assert answer.status_code == 409
    assert (answer.context["version"], answer.context["text"]) == ("1", form["document"])


@pytest.mark.parametrize("version", ["", "x", "²", "9" * 30, "-1"])
def test_a_form_without_a_version_is_refused(desk: Client, at: str, version: str) -> None:
    for page in ("edit", "panels/1"):
        assert desk.post(f"{at}/{page}", {"version": version, "layout": "[]"}).status_code == 400


def test_a_preview_saves_nothing(desk: Client, at: str) -> None:
    answer = desk.post(f"{at}/panels/1", {"version": "1", "expr": ["sum(up)"], "act": "preview"})
    assert b'data-expr="sum(up)"' in answer.content
    assert Dashboard.objects.get().version == 1


def test_a_dashboard_goes_only_if_its_title_is_typed(desk: Client, at: str) -> None:
    assert desk.post(f"{at}/settings", {"act": "delete", "confirm": "Sho"}).status_code == 400
    assert desk.post(f"{at}/settings", {"act": "delete", "confirm": "Shop"}).status_code == 302
    assert not Dashboard.objects.exists()


def test_an_import_is_reported_before_it_is_saved(desk: Client, alpha: Tenant) -> None:
    root = f"/apps/{alpha.app.pk}/dashboards"
    theirs = orjson.dumps({"title": "T", "panels": [{"type": "logs", "title": "<b>Log</b>"}]}).decode()
    report = desk.post(f"{root}/import", {"document": theirs})
    assert b"there are no logs here" in report.content
    assert b"&lt;b&gt;Log" in report.content
    assert not Dashboard.objects.exists()
    saved = desk.post(f"{root}/import", {"act": "save", "document": report.context["text"]})
    assert saved["Location"] == f"{root}/{Dashboard.objects.get().uid}"


def test_variables_offer_what_the_own_app_has(desk: Client, alpha: Tenant, beta: Tenant, settings: object) -> None:
    url, now_ms = settings.SPM_STORE_URL, SystemClock().now_ms()  # type: ignore[attr-defined]  # pytest-django's
    sample_app.fill(url, beta.app.pk, now_ms=now_ms, span_ms=60_000)
    shown = document(variables=[{"name": "host", "query": "label_values(cpu_usage_total, host)"}])
    by = storage.Author(alpha.owner, now_ms)
    address = f"/apps/{alpha.app.pk}/dashboards/{storage.create(alpha.app, shown, by).uid}"
    assert b"web-1" not in desk.get(address).content
    sample_app.fill(url, alpha.app.pk, now_ms=now_ms, span_ms=60_000)
    assert b"web-1" in desk.get(address).content


def test_the_form_of_variables_keeps_the_values_of_hidden_ones(desk: Client, alpha: Tenant) -> None:
    names: dict[str, dict[str, object]] = {"shown": {}, "secret": {"hidden": True}, "fixed": {"kind": "constant"}}
    variables = [{"kind": "custom", "query": "a,b", **fields, "name": name} for name, fields in names.items()]
    uid = storage.create(alpha.app, document(variables=variables), storage.Author(alpha.owner, 1)).uid
    address = "?var-secret=b&var-secret=a&var-shown=b&range=1h"
    page = desk.get(f"/apps/{alpha.app.pk}/dashboards/{uid}{address}")
    assert page.context["others"] == [("var-secret", "b"), ("var-secret", "a"), ("range", "1h")]
    assert b'<input type="hidden" name="var-secret" value="b">' in page.content
    assert b'name="var-fixed"' not in page.content


def test_the_json_of_a_large_dashboard_can_be_saved_where_it_is_shown(desk: Client, alpha: Tenant) -> None:
    large = document(*[{"queries": [{"expr": "up"}] * 20}] * 300)
    uid = storage.create(alpha.app, large, storage.Author(alpha.owner, 1)).uid
    at = f"/apps/{alpha.app.pk}/dashboards/{uid}/settings"
    form = {"document": desk.get(at).context["text"], "version": "1"}
    assert (len(form["document"]) > DOCUMENT_BYTES_MAX, desk.post(at, form).status_code) == (True, 302)


@pytest.mark.parametrize("page", ["", "/edit", "/panels/1", "/settings", "/json"])
def test_a_dashboard_of_another_tenant_is_not_found_below_the_own_app(
    desk: Client, alpha: Tenant, beta: Tenant, page: str
) -> None:
    foreign = storage.create(beta.app, BASE, storage.Author(beta.owner, 1_000))
    target = f"/apps/{alpha.app.pk}/dashboards/{foreign.uid}{page}"
    answers = [
        desk.get(target),
        desk.post(target, {"version": "1", "act": "delete", "confirm": "Shop", "layout": "[]"}),
    ]
    assert {answer.status_code for answer in answers} <= {404, 405}
    assert Dashboard.objects.filter(pk=foreign.pk, version=1).exists()


def test_a_list_is_filtered_and_has_its_own_dashboards_only(
    desk: Client, alpha: Tenant, beta: Tenant, dashboard: Dashboard
) -> None:
    storage.create(beta.app, document(title="Foreign"), storage.Author(beta.owner, 1_000))
    root = f"/apps/{alpha.app.pk}/dashboards"
    assert b"Foreign" not in desk.get(root).content
    assert dashboard.uid.encode() in desk.get(f"{root}?q=sho").content
    assert dashboard.uid.encode() not in desk.get(f"{root}?q=sho%00x").content


def titles(page: Any) -> list[str]:
    """The titles of a list, in its order."""
    return [each.title for each in page.context["dashboards"]]


def test_a_star_puts_a_dashboard_first_for_one_person_alone(desk: Client, alpha: Tenant) -> None:
    author, root = storage.Author(alpha.owner, 1), f"/apps/{alpha.app.pk}/dashboards"
    storage.create(alpha.app, document(title="A"), author)
    later = storage.create(alpha.app, document(title="B"), author)
    for _ in range(2):
        assert desk.post(f"{root}/{later.uid}/star").status_code == 302
    assert titles(desk.get(root)) == ["B", "A"]
    viewer = Client()
    viewer.force_login(alpha.viewer)
    assert titles(viewer.get(root)) == ["A", "B"]
    desk.post(f"{root}/{later.uid}/star", {"act": "unstar"})
    assert titles(desk.get(root)) == ["A", "B"]


def test_tags_of_the_newest_document_filter_the_list(
    desk: Client, alpha: Tenant, dashboard: Dashboard, at: str
) -> None:
    root = f"/apps/{alpha.app.pk}/dashboards"
    storage.create(alpha.app, document(title="Other", tags=["shop", "old"]), storage.Author(alpha.owner, 1))
    form = {"act": "about", "version": "1", "title": "Shop 2", "description": "All of it", "tags": "shop, new,, shop"}
    assert desk.post(f"{at}/settings", form).status_code == 302
    dashboard.refresh_from_db()
    saved = storage.document_of(dashboard)
    assert (saved.title, saved.description, saved.tags, saved.panels) == (
        "Shop 2",
        "All of it",
        ("shop", "new"),
        BASE.panels,
    )
    assert titles(desk.get(f"{root}?tag=shop")) == ["Other", "Shop 2"]
    assert titles(desk.get(f"{root}?tag=new&q=SHOP")) == ["Shop 2"]
    assert desk.get(root).context["tags"] == ["new", "old", "shop"]
    assert desk.post(f"{at}/settings", {**form, "version": "2", "title": " "}).status_code == 400


def test_a_row_is_folded_at_first_where_its_editor_says_so(desk: Client, alpha: Tenant) -> None:
    rows = document({"kind": "row", "title": "CPU", "h": 1, "w": 24}, {"title": "below", "y": 1})
    dashboard = storage.create(alpha.app, rows, storage.Author(alpha.owner, 1))
    at = f"/apps/{alpha.app.pk}/dashboards/{dashboard.uid}"
    assert b"data-folded" not in desk.get(at).content
    for version, fields, is_folded in ((1, {"folded": "on"}, True), (2, {}, False)):
        desk.post(f"{at}/panels/1", {"version": str(version), "title": "CPU", "kind": "row", **fields})
        assert (b"data-row data-folded" in desk.get(at).content) is is_folded
