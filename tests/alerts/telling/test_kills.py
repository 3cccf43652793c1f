"""Processes are killed between any two steps of telling: each change is told once per key, in order, none is lost."""

import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.alerts.notify.http.servers import http_server

pytestmark = [pytest.mark.chaos, pytest.mark.slow]
TURNS = {20: 2, 200: 20}  # by the kills that they come to at least: not each life reaches its place


@pytest.fixture(
    scope="module", params=[20, pytest.param(200, marks=pytest.mark.proof)], ids=lambda kills: f"{kills} kills"
)
def story(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]:
    """What is true in the end, and the bodies that came, by receiver, in the order in which they came."""
    folder: Path = tmp_path_factory.mktemp("lives")
    more = {
        "SPM_DATA": str(folder),
        "SPM_NOTIFY_NETWORKS": "127.0.0.0/8",
        "DATABASE_URL": f"sqlite:///{folder}/lives.db",
    }
    environment = {**os.environ, **more, "DJANGO_SETTINGS_MODULE": "tests.settings", "SPM_TEST_DATA_OF": "lives"}
    environment["PYTEST_XDIST_WORKER"] = "lives"
    with http_server() as server:
        command = [sys.executable, "-m", "tests.alerts.telling.lives", server.url, str(TURNS[request.param])]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1_800, check=False)
        assert ran.returncode == 0, ran.stderr[-3_000:]
        heard: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for each in server.received:
            heard[each.path].append(json.loads(each.body))
    return {"kills_min": request.param, **json.loads(ran.stdout)}, heard


Story = tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]


def test_enough_processes_were_killed(story: Story, figure: Callable[[str], None]) -> None:
    truth, heard = story
    figure(f"{truth['killed']} processes were killed, {len(truth['episodes'])} alerts were told")
    assert truth["killed"] >= truth["kills_min"]
    assert truth["waiting"] == 0
    assert set(heard) == {"/one", "/two", "/three"}


def test_a_key_always_comes_with_one_body(story: Story) -> None:
    for bodies in story[1].values():
        by_key: dict[str, Any] = {}
        assert all(by_key.setdefault(body["key"], body) == body for body in bodies)


def test_no_notification_of_a_group_overtakes_another(story: Story) -> None:
    for bodies in story[1].values():
        last: dict[str, int] = {}
        for body in bodies:
            assert body["sequence"] >= last.get(body["groupKey"], 0)
            last[body["groupKey"]] = body["sequence"]


def test_each_change_is_told_under_one_key_and_the_end_is_the_truth(story: Story) -> None:
    truth, heard = story
    expected = {name: "firing" if state == "open" else "resolved" for name, state in truth["episodes"].items()}
    for path, bodies in heard.items():
        status: dict[str, str] = {}
        for body in {body["key"]: body for body in bodies}.values():
            for alert in body["alerts"]:
                episode = str(alert["episode"])
                assert status.get(episode) != alert["status"] or alert["perhaps"] or alert["kind"] == "repeat"
                status[episode] = alert["status"]
        if path == "/three":  # hears what has stayed open, and then its end
            assert status.items() <= expected.items()
            assert [name for name in expected if expected[name] == "firing" and name not in status] == []
        else:
            assert status == expected
