"""No address shows data of an app to people or programs of another organisation: a matrix over all addresses.

The addresses come from the site's own URLs, so that a new one is tested as soon as it exists. Each is called with a
foreign app, in its path or as ``app=``.
"""

import re
from typing import Any

import pytest
from django.test import Client
from django.urls import get_resolver

from spm.clock import SystemClock
from tests.frontend.site_walk import routes
from tests.support import sample_app
from tests.support.people import Tenant

VALUES = {"host": "web-1", "token_id": "1", "name": "host", "number": "1", "agent": "web-1"}
VALUES |= {"uid": "none", "key": "host-agent"}
BY_PARAMETER = [
    "/api/v1/charts?expr=cpu_usage_total&app={app}",
    "/api/v1/search?q=web&app={app}",
    "/api/v1/percentiles?match=cpu_usage_total&q=0.5&by=host&app={app}",
    "/prometheus/api/v1/query?query=cpu_usage_total&app={app}",
    "/prometheus/api/v1/query_range?query=cpu_usage_total&start=0&end=60&step=60&app={app}",
    "/prometheus/api/v1/labels?app={app}",
    "/prometheus/api/v1/label/host/values?app={app}",
]


def addresses() -> list[str]:
    """List the addresses that name an app, with all other parts filled in; not those of the administration."""
    every = routes(get_resolver().url_patterns)
    with_app = [route for route in every if "<int:app_id>" in route and not route.startswith("/admin/")]
    filled = [route.replace("<int:app_id>", "{app}") for route in with_app]
    return [re.sub(r"<(?:\w+:)?(\w+)>", lambda match: VALUES[match[1]], route) for route in filled]


def test_the_matrix_knows_the_addresses() -> None:
    assert len(addresses()) >= 10


@pytest.mark.parametrize("address", [each for each in [*addresses(), *BY_PARAMETER] if "/api/" in each])
def test_a_foreign_app_is_never_read_by_a_token(
    client: Client, alpha: Tenant, beta: Tenant, settings: Any, address: str
) -> None:
    sample_app.fill(settings.SPM_STORE_URL, beta.app.pk, now_ms=SystemClock().now_ms(), span_ms=60_000)
    response = client.get(address.format(app=beta.app.pk), HTTP_AUTHORIZATION=f"Bearer {alpha.token}")
    assert response.status_code in (200, 404, 405)
    assert b"web-1" not in response.content
    assert b"cpu_usage" not in response.content


def of_organisations() -> list[str]:
    """List the addresses that name an organisation."""
    every = routes(get_resolver().url_patterns)
    named = [route.replace("<int:organisation_id>", "{organisation}") for route in every if "organisation_id" in route]
    return [re.sub(r"<(?:\w+:)?(\w+)>", lambda match: VALUES[match[1]], route) for route in named]


@pytest.mark.parametrize("address", of_organisations())
def test_a_foreign_organisation_is_not_found_by_any_method(desk: Client, beta: Tenant, address: str) -> None:
    target = address.format(organisation=beta.organisation.pk)
    answers = [getattr(desk, method)(target) for method in ("get", "post", "put", "patch", "delete")]
    assert {answer.status_code for answer in answers} <= {404, 405}
    assert 404 in {answer.status_code for answer in answers}
    assert not any(b"beta" in answer.content for answer in answers)
    by_token = Client().get(target, HTTP_AUTHORIZATION=f"Bearer {beta.token}")
    assert by_token.status_code in (302, 403, 405)
