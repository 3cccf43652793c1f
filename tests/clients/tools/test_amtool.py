"""amtool against the product itself: what fires, silences, receivers and routes, as against an Alertmanager."""

import json
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.clients.support.apps import new_apps
from tests.clients.support.programs import program
from tests.servers.processes import wait_until
from tests.servers.product import Served

pytestmark = [pytest.mark.real, pytest.mark.slow, pytest.mark.timeout(600)]
Amtool = Callable[..., Any]
RULE = {"name": "TooWarm", "expr": "amtool_room", "comparator": ">", "threshold": 20, "receivers": []}


@pytest.fixture
def app(served: Served) -> Served:
    """A new app, with a token that may write."""
    [app] = new_apps(served, scopes=("ingest", "write"))
    return app


@pytest.fixture
def amtool(app: Served) -> Amtool:
    """Runs amtool, with the token as the password in the address; returns its JSON, or its text."""

    def run(*words: str, status: int = 0, output: str = "json") -> Any:
        address = f"--alertmanager.url=http://amtool:{app.token}@127.0.0.1:{app.port}"
        command = [program("amtool", "prometheus-alertmanager"), address, f"--output={output}", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == status, done.stderr
        if status:
            return done.stdout + done.stderr
        if output != "json":
            return done.stdout  # a difference of versions is a warning on the other one
        return json.loads(done.stdout) if done.stdout.lstrip().startswith(("[", "{")) else done.stdout.strip()

    return run


def push(app: Served) -> None:
    """Two warm rooms and a cold one, now."""
    now_ms = time.time_ns() // 1_000_000
    lines = [f"amtool,room={room} room={value} {now_ms}" for room, value in (("a", 21), ("b", 25), ("c", 15))]
    assert app.push(app.connection(), "\n".join(lines).encode()) == 204


def rooms(alerts: list[dict[str, Any]]) -> list[str]:
    return sorted(each["labels"]["room"] for each in alerts)


def test_amtool_lists_alerts_and_silences_and_ends_them(app: Served, amtool: Amtool) -> None:
    connection = app.connection()
    body = json.dumps(RULE)
    connection.request(
        "POST", f"/api/v1/apps/{app.app}/rules", body, {**app.headers, "Content-Type": "application/json"}
    )
    answer = connection.getresponse()
    assert answer.status == 201, answer.read()

    def fires() -> bool:
        """Whether the alerts of both warm rooms are listed."""
        push(app)
        return rooms(amtool("alert", "query", "TooWarm")) == ["a", "b"]

    assert wait_until(fires, 300)
    assert rooms(amtool("alert", "query", "TooWarm", "room=~b|c")) == ["b"]
    silence = amtool("silence", "add", "--author=ops", "--comment=a window", "room=a", output="simple").strip()
    assert rooms(amtool("alert", "query", "TooWarm")) == ["b"]
    assert rooms(amtool("alert", "query", "--silenced", "TooWarm")) == ["a"]
    [read] = amtool("silence", "query")
    assert (read["id"], read["comment"], read["status"]["state"]) == (silence, "a window — ops", "active")
    assert [each["name"] for each in read["matchers"]] == ["room", "app"]
    assert amtool("silence", "query", "room=b") == []
    amtool("silence", "update", "--duration=3h", silence)
    [longer] = amtool("silence", "query")
    assert (longer["id"] != silence, longer["endsAt"] > read["endsAt"]) == (True, True)
    amtool("silence", "expire", longer["id"], output="simple")
    assert amtool("silence", "query") == []
    assert rooms(amtool("alert", "query", "TooWarm")) == ["a", "b"]


def test_amtool_shows_routes_and_hears_why_it_is_refused(app: Served, served: Served, amtool: Amtool) -> None:
    assert "receivers of the rule" in amtool("config", "routes", "show", output="simple")
    assert amtool("config", "routes", "test", "severity=page", output="simple").strip() == "receivers of the rule"
    assert "receiver" in amtool("config", "show", output="simple")
    past = ("--start=2001-01-01T00:00:00Z", "--end=2001-01-02T00:00:00Z")
    assert "ends after its beginning" in amtool("silence", "add", "--author=o", "--comment=c", *past, "a=b", status=1)
