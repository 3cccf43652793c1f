"""The form of variables: every button changes the form alone, Save saves what it shows."""

from typing import Any

import pytest
from django.test import Client

from frontend.dashboards import storage
from frontend.dashboards.limits import VARIABLES_MAX
from frontend.dashboards.models import Dashboard
from spm.clock import SystemClock
from tests.frontend.dashboards.documents import document
from tests.support import sample_app
from tests.support.people import Tenant

HOST = {"name": "host", "query": "label_values(cpu_usage_total, host)", "multi": True, "all": True, "label": "Host"}
SIZE = {"name": "size", "kind": "custom", "query": "s, m, l", "values": ["m", "a,b"], "hidden": True, "all_value": ".+"}
STEP = {"name": "step", "kind": "interval", "query": "$__auto, 1m", "regex": ".*m"}
BASE = document(
    {"title": "of $host", "repeat": "size", "queries": [{"expr": 'up{host=~"$host"}'}]}, variables=[HOST, SIZE, STEP]
)


@pytest.fixture
def dashboard(alpha: Tenant) -> Dashboard:
    return storage.create(alpha.app, BASE, storage.Author(alpha.owner, 1_000))


@pytest.fixture
def at(alpha: Tenant, dashboard: Dashboard) -> str:
    return f"/apps/{alpha.app.pk}/dashboards/{dashboard.uid}/variables"


def form_of(page: Any) -> dict[str, str]:
    """What a browser would send of the form as it is shown."""
    form = {"version": str(page.context["version"])}
    for field in page.context["fields"]:
        texts = {**field.spec, "values": field.values}
        form |= {f"{field.number}-{name}": text for name, text in texts.items() if isinstance(text, str)}
        form |= {f"{field.number}-{name}": "on" for name in ("multi", "all", "hidden") if field.spec[name]}
    return form


def names(page: Any) -> list[str]:
    """The names of the variables in the form."""
    return [field.spec["name"] for field in page.context["fields"]]


def saved(dashboard: Dashboard) -> Any:
    dashboard.refresh_from_db()
    return storage.document_of(dashboard)


def test_a_form_that_nobody_changed_saves_what_was_there(desk: Client, at: str, dashboard: Dashboard) -> None:
    assert desk.post(at, form_of(desk.get(at))).status_code == 302
    assert saved(dashboard) == BASE


@pytest.mark.parametrize(
    ("act", "expected"),
    [
        ("up-1", ["size", "host", "step"]),
        ("down-1", ["host", "step", "size"]),
        ("up-0", ["host", "size", "step"]),
        ("down-2", ["host", "size", "step"]),
        ("delete-1", ["host", "step"]),
        ("add", ["host", "size", "step", ""]),
        ("preview", ["host", "size", "step"]),
        ("delete-99", ["host", "size", "step"]),
        ("up-²", ["host", "size", "step"]),
        ("nonsense", ["host", "size", "step"]),
    ],
)
def test_a_button_changes_the_form_alone(desk: Client, at: str, act: str, expected: list[str]) -> None:
    page = desk.post(at, {**form_of(desk.get(at)), "act": act})
    assert (page.status_code, names(page)) == (200, expected)
    assert Dashboard.objects.get().version == 1


def test_variables_are_added_ordered_and_saved_as_one_version(desk: Client, at: str, dashboard: Dashboard) -> None:
    form = {**form_of(desk.get(at)), "act": "add"}
    page = desk.post(at, form)
    form = {**form_of(page), "3-name": "word", "3-kind": "text", "3-query": "all of it", "act": "up-3"}
    page = desk.post(at, form)
    assert desk.post(at, {**form_of(page), "act": "save"}).status_code == 302
    document_saved = saved(dashboard)
    assert [each.name for each in document_saved.variables] == ["host", "size", "word", "step"]
    assert (document_saved.variables[2].query, dashboard.version) == ("all of it", 2)


def test_the_form_shows_the_values_of_each_and_where_it_is_used(
    desk: Client, alpha: Tenant, at: str, settings: Any
) -> None:
    sample_app.fill(settings.SPM_STORE_URL, alpha.app.pk, now_ms=SystemClock().now_ms(), span_ms=60_000)
    host, size, step = desk.get(at).context["fields"]
    assert (host.settled.options, host.uses) == (["db-1", "web-1", "web-2", "worker-1"], 1)
    assert (size.settled.options, size.uses) == (["s", "m", "l"], 1)
    assert (step.settled.options, step.uses) == (["1m"], 0)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"1-name": "host"}, b"two variables have one name"),
        ({"1-name": "not a name"}, b"has no name"),
        ({"1-name": ""}, b"has no name"),
        ({"1-kind": "other"}, b"is unknown"),
        ({"1-query": "x" * 5_000}, b"too long"),
        ({"version": "x"}, b"the form has no version"),
    ],
)
def test_what_is_wrong_is_said_and_the_form_keeps_its_input(
    desk: Client, at: str, changes: dict[str, str], text: bytes
) -> None:
    form = form_of(desk.get(at)) | changes
    page = desk.post(at, form)
    assert (page.status_code, text in page.content) == (400, True)
    assert form_of(page) == form


def test_two_people_who_change_variables_do_not_overwrite_each_other(desk: Client, at: str) -> None:
    form = form_of(desk.get(at))
    assert desk.post(at, {**form, "0-label": "Theirs"}).status_code == 302
    page = desk.post(at, {**form, "0-label": "Mine"})
    assert (page.status_code, b"changed the same: the variables" in page.content) == (409, True)
    assert b'value="Mine"' in page.content


def test_more_variables_than_a_dashboard_may_have_are_refused(desk: Client, at: str) -> None:
    form = {"version": "1"} | {f"{number}-name": f"v{number}" for number in range(VARIABLES_MAX + 5)}
    page = desk.post(at, form)
    assert (page.status_code, b"too many variables" in page.content) == (400, True)


def test_a_form_that_a_button_changed_says_that_it_is_not_saved(desk: Client, at: str) -> None:
    page = desk.get(at)
    assert "Not saved yet" not in page.content.decode()
    form = form_of(page)
    same = desk.post(at, {**form, "act": "preview"}).content.decode()
    moved = desk.post(at, {**form, "act": "down-0"}).content.decode()
    assert ["data-changed" in text for text in (same, moved)] == [False, True]
    assert "Not saved yet" in moved
