"""The OpenAPI schema has every endpoint of Prometheus' API, export and import, with its parameters."""

from typing import Any

import pytest
from django.test import Client
from django.urls.resolvers import URLPattern, URLResolver
from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.generators import SchemaGenerator

from frontend.prometheus import urls
from frontend.transfer import urls as transfer
from frontend.transfer.writers import FORMS
from ingest.http.urls import ENDPOINTS
from tests.support.people import Tenant


def addresses(prefix: str, patterns: list[URLPattern | URLResolver]) -> set[str]:
    """Return the paths of URL patterns as a schema writes them."""
    return {f"{prefix}{each.pattern}".replace("<str:name>", "{name}") for each in patterns}


@pytest.fixture
def paths(desk: Client) -> dict[str, Any]:
    paths: dict[str, Any] = desk.get("/api/v1/schema?format=json").json()["paths"]
    return paths


def test_every_address_is_described_and_no_other(paths: dict[str, Any]) -> None:
    own = addresses("/prometheus/", list(urls.urlpatterns)) | addresses("/api/v1/", transfer.urlpatterns)
    assert own <= paths.keys()
    pushed = {f"/{route}" for route in ENDPOINTS}
    assert pushed <= paths.keys()
    assert {path for path in paths if path.startswith("/prometheus/")} <= own | pushed


def test_events_are_described_though_no_url_of_django_has_them(paths: dict[str, Any]) -> None:
    methods = paths["/api/v1/events"]
    assert methods.keys() == {"get", "post"}
    assert {each["name"] for each in methods["get"]["parameters"]} == {
        *("app", "after", "timeout", "stream_position", "kind"),
    }


def test_a_form_takes_what_the_address_takes(paths: dict[str, Any]) -> None:
    methods = paths["/prometheus/api/v1/query_range"]
    form = methods["post"]["requestBody"]["content"]["application/x-www-form-urlencoded"]["schema"]
    assert set(form["properties"]) == {each["name"] for each in methods["get"]["parameters"]}
    assert form["required"] == ["query", "start", "end", "step"]
    assert form["properties"].keys() >= {"timeout", "limit", "stats", "explain", "asof", "lookback_delta"}


def test_path_parameters_stay_in_the_path(paths: dict[str, Any]) -> None:
    for method in ("get", "post"):
        [name] = [p for p in paths["/prometheus/api/v1/label/{name}/values"][method]["parameters"] if p["in"] == "path"]
        assert (name["name"], name["required"]) == ("name", True)


def test_every_operation_says_what_it_refuses(paths: dict[str, Any]) -> None:
    for path, methods in paths.items():
        for operation in methods.values():
            codes = operation["responses"].keys()
            if "requestBody" in operation or any(each["in"] == "query" for each in operation.get("parameters", ())):
                assert codes >= {"400", "414"}, path
            if "requestBody" in operation:
                assert "413" in codes, path


def test_the_schema_is_made_without_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    generator: Any = SchemaGenerator()  # type: ignore[no-untyped-call]  # the library has no types
    GENERATOR_STATS.reset()
    generator.get_schema(request=None, public=True)
    GENERATOR_STATS.emit_summary()
    assert capsys.readouterr().err == ""


def test_answers_are_described_in_each_of_their_formats(paths: dict[str, Any], desk: Client, alpha: Tenant) -> None:
    export = paths["/api/v1/export"]["get"]["responses"]["200"]["content"]
    for form in FORMS:
        address = f"/api/v1/export?app={alpha.app.pk}&match[]=up&start=1&end=2&format={form}"
        assert desk.get(address)["Content-Type"].partition(";")[0] in export, form
    lines = desk.post("/api/v1/charts/batch?format=ndjson", {"panels": 1}, content_type="application/json")
    described = paths["/api/v1/charts/batch"]["post"]["responses"][str(lines.status_code)]["content"]
    assert lines.status_code == 400
    assert lines["Content-Type"].partition(";")[0] in described
