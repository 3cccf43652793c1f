"""A client made from the OpenAPI schema by OpenAPI Generator, unmodified: it sends, asks, keeps dashboards and rules.

The generator checks the schema, too, and refuses one that is not valid.
"""

import importlib
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.clients.support.apps import new_apps
from tests.conftest import missing_service
from tests.servers.processes import wait_until
from tests.servers.product import Served

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(600)]
PACKAGE = "generated_spm_client"
_ONLY_CODE = "apiTests=false,modelTests=false,apiDocs=false,modelDocs=false"


@pytest.fixture(scope="module")
def client(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The package of the client, made a moment ago."""
    if importlib.util.find_spec("openapi_generator_cli") is None:
        missing_service("openapi-generator-cli is not installed (it is among the extra clients)")
    folder = tmp_path_factory.mktemp("generated")
    schema = folder / "schema.json"
    address = f"http://127.0.0.1:{served.port}/api/v1/schema?format=json"
    schema.write_bytes(urllib.request.urlopen(urllib.request.Request(address, headers=dict(served.headers))).read())
    script = Path(sys.executable).with_name("openapi-generator-cli")
    words = ["generate", "-g", "python", "-i", str(schema), "-o", str(folder), "--package-name", PACKAGE]
    done = subprocess.run(
        [sys.executable, str(script), *words, "--global-property", _ONLY_CODE],
        env={**os.environ, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    sys.path.insert(0, str(folder))
    yield importlib.import_module(PACKAGE)
    sys.path.remove(str(folder))


@pytest.fixture(scope="module")
def app(served: Served) -> Served:
    """An app of its own, with a token for everything."""
    [app] = new_apps(served, scopes=("ingest", "read", "write"))
    return app


@pytest.fixture(scope="module")
def session(client: ModuleType, app: Served) -> Any:
    """The client's connection."""
    settings = client.Configuration(host=f"http://127.0.0.1:{app.port}", access_token=app.token)
    return client.ApiClient(settings)


def session_app(session: Any) -> int:
    """The app of the token."""
    module = importlib.import_module(PACKAGE)
    [app] = module.AppsApi(session).apps()
    return int(app.id)


def test_samples_are_pushed_and_queried(client: ModuleType, session: Any) -> None:
    now_s = int(time.time())
    lines = "\n".join(f'room_temperature{{floor="2"}} {20 + n} {(now_s - 60 + n) * 1000}' for n in range(10))
    client.IngestApi(session).ingest_text_post(lines.encode())
    prometheus = client.PrometheusApi(session)
    query = "sum_over_time(room_temperature[5m])"

    def value() -> list[str]:
        return [each["value"][1] for each in prometheus.prometheus_api_v1_query_get(query)["data"]["result"]]

    assert wait_until(lambda: value() == ["245"], 30), value()
    assert client.AppsApi(session).metrics(session_app(session)).metrics == ["room_temperature"]


def test_a_dashboard_is_created_read_and_deleted(client: ModuleType, session: Any) -> None:
    app, apps = session_app(session), client.AppsApi(session)
    document = {"title": "Rooms", "panels": [{"number": 1, "queries": [{"expr": "room_temperature"}]}]}
    dashboard = apps.dashboard_create(app, client.DashboardDraft(document=document))
    assert [each.title for each in apps.dashboards(app).dashboards] == ["Rooms"]
    assert apps.dashboard(app, dashboard.uid).document["title"] == "Rooms"
    apps.dashboard_delete(app, dashboard.uid, if_match="*")
    with pytest.raises(client.exceptions.NotFoundException) as failure:
        apps.dashboard(app, dashboard.uid)
    assert "error" in failure.value.body


def test_a_rule_is_written_and_a_wrong_one_is_refused_with_the_reason(client: ModuleType, session: Any) -> None:
    app, apps = session_app(session), client.AppsApi(session)
    draft = client.RuleDraft(name="Too warm", expr="room_temperature", comparator=">", threshold=25)
    rule = apps.rule_create(app, draft)
    assert (rule.name, rule.kind.value) == ("Too warm", "threshold")
    with pytest.raises(client.exceptions.BadRequestException) as failure:
        apps.rule_create(app, client.RuleDraft(name="Wrong", expr="sum(", comparator=">", threshold=1))
    assert "expr" in failure.value.body
