"""The pages of help show every operation of the schema, and are found by words."""

import html
import re

from django.test import Client

from frontend.help.operations import matching, operations_of
from frontend.help.pages import site_operations
from tests.support.people import Tenant


def test_every_operation_is_listed_and_has_its_page(desk: Client) -> None:
    listed = re.findall(r'href="/help/api/(\w+)"', desk.get("/help/api").content.decode())
    assert sorted(listed) == sorted(each.name for each in site_operations())
    for each in site_operations():
        page = html.unescape(desk.get(f"/help/api/{each.name}").content.decode())
        assert f"<code>{each.path}</code>" in page, each.name
        assert each.command.replace("http://localhost:8000", "http://testserver") in page, each.name


def test_a_command_has_the_address_of_the_site_and_the_numbers_of_the_reader(desk: Client, alpha: Tenant) -> None:
    page = html.unescape(desk.get("/help/api/rules", headers={"Host": "localhost"}).content.decode())
    assert 'curl -H "Authorization: Bearer $TOKEN" "http://localhost/api/v1/apps/$APP/rules"' in page
    assert f"APP={alpha.app.pk} " in page


def test_a_page_says_who_may_ask(desk: Client) -> None:
    page = desk.get("/help/api/rule_create").content.decode()
    assert "a token with the scope write, or a person with the role editor or higher" in page
    assert "Only a person may ask, no token" in desk.get("/help/api/run_rollback").content.decode()
    assert "Anybody may ask" in desk.get("/help/api/ingest_ping_get").content.decode()


def test_operations_are_found_by_all_words_of_a_search(desk: Client) -> None:
    names = {each.name for each in matching(site_operations(), "POST dashboards IMPORT")}
    assert names == {"dashboard_import"}
    page = desk.get("/help/api?q=asof").content.decode()
    assert "/help/api/chart" in page
    assert "/help/api/ingest_write_post" not in page
    assert "No operation has these words" in desk.get("/help/api?q=%3Cnothing%3E").content.decode()


def test_shapes_follow_references_and_name_what_is_optional() -> None:
    components = {
        "A": {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}, "b": {"$ref": "#/x/B"}}},
        "B": {"type": "array", "items": {"enum": ["x", "y"]}},
    }
    answer = {"200": {"description": "d", "content": {"application/json": {"schema": {"$ref": "#/x/A"}}}}}
    operation = {
        "operationId": "o",
        "tags": ["t"],
        "security": [{}],
        "responses": answer,
        "x-codeSamples": [{"source": "curl"}],
    }
    [cut] = operations_of({"components": {"schemas": components}, "paths": {"/o": {"get": operation}}})
    assert cut.answers[0].shape == '{\n  id: integer\n  b?: ["x" | "y"]\n}'
