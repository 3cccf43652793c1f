"""The parts of a query that come with the page Explore."""

import orjson
import pytest
from django.test import Client

from frontend.presenters.exploring.first_parts import read_parts
from tests.support.people import Tenant, make_tenant


@pytest.mark.parametrize(
    ("expr", "fields"),
    [
        ("up", []),
        ("rate(net_bytes_recv[$__rate_interval])", ["window"]),
        ("sum by (host) (rate(net_bytes_recv[5m]))", ["window", "grouping"]),
        ("topk(3, up)", ["parameter", "grouping"]),
        ("quantile_over_time(0.9, up[5m])", ["window", "number"]),
    ],
)
def test_a_query_needs_the_fields_of_its_function_and_aggregation(expr: str, fields: list[str]) -> None:
    parts = read_parts(expr)
    assert parts is not None
    assert parts.fields == fields


@pytest.mark.parametrize("expr", ["", "up +", "a / b"])
def test_what_the_builder_cannot_show_comes_without_parts(expr: str) -> None:
    assert read_parts(expr) is None


@pytest.fixture
def tenant(db: None) -> Tenant:
    """An organisation with an app."""
    return make_tenant("alpha")


@pytest.mark.parametrize("expr", ["sum by (host) (rate(net_bytes_recv[5m]))", 'up{job="a"}'])
def test_the_parts_are_those_that_the_api_answers(expr: str, tenant: Tenant, client: Client) -> None:
    client.force_login(tenant.owner)
    answer = client.get("/api/v1/query-builder", {"expr": expr}).json()
    parts = read_parts(expr)
    assert parts is not None
    assert orjson.loads(parts.text) == {"expr": expr, **answer}
