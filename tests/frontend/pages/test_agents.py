"""The pages of agents and of sending: states, snippets that name the token, the first data that appears by itself."""

import html
import io
import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from frontend.agent_file import agent_archive
from frontend.presenters import snippets
from ingest.agent.version import VERSION
from ingest.models import Agent, AgentSettings
from spm.clock import SystemClock, moment
from tests.support import notes
from tests.support.people import Tenant


def agent(tenant: Tenant, name: str = "web-1", **changes: Any) -> Agent:
    now = moment(SystemClock().now_ms())
    fields = {"version": "0.0.1", "period_ms": 10_000, "started": now, "first_seen": now, "last_seen": now, **changes}
    return Agent.objects.create(app=tenant.app, name=name, **fields)


def test_an_app_without_agents_shows_how_to_start_one(desk: Client, alpha: Tenant) -> None:
    page = desk.get(f"/apps/{alpha.app.pk}/data/sources").content.decode()
    assert "No agent has reported yet" in page
    assert f"/apps/{alpha.app.pk}/add-data?way=agent" in page


def test_agents_are_shown_with_what_is_wrong_with_them(desk: Client, alpha: Tenant) -> None:
    agent(
        alpha,
        spooled=123,
        dropped_samples=4_200,
        offset_ms=-65_000,
        refused={"period_s": "set on the host (file)"},
        collectors={"redis:a": "<b>refused</b>", "cpu": "ok"},
    )
    page = desk.get(f"/apps/{alpha.app.pk}/data/sources/table").content.decode()
    for text in (
        "web-1",
        "late",
        "123",
        "4,200",
        "65 s behind",
        "redis:a: &lt;b&gt;refused",
        "the pushed setting period_s",
    ):
        assert text in page
    assert "cpu: ok" not in page


def test_senders_that_are_no_agents_stand_below_them_those_in_trouble_first(desk: Client, alpha: Tenant) -> None:
    now_ms = SystemClock().now_ms()
    agent(alpha)
    for name, age_ms in (("web-1", 0), ("token-1", 1_000), ("<b>telegraf</b>", 7_200_000)):
        notes.see_source(alpha.app.pk, name, now_ms - age_ms)
    page = desk.get(f"/apps/{alpha.app.pk}/data/sources").content.decode()
    others = page[page.index("Other senders") :]
    assert others.index("&lt;b&gt;telegraf") < others.index("token-1")
    assert ("gone" in others, "web-1" in others) == (True, False)
    assert "not announced" in others


def test_settings_are_pushed_and_removed_by_a_form(desk: Client, alpha: Tenant) -> None:
    path = f"/apps/{alpha.app.pk}/data/sources/settings"
    form = {
        "match": "role=web",
        "period_s": "30",
        "tags": "site=ber, rack = 7",
        "off": "redis, processes",
        "discover": "no",
    }
    assert desk.post(path, form).status_code == 302
    [entry] = AgentSettings.objects.all()
    assert entry.settings == {
        "period_s": 30.0,
        "tags": {"site": "ber", "rack": "7"},
        "off": ["redis", "processes"],
        "discover": False,
    }
    assert "rack=7,site=ber" in desk.get(f"/apps/{alpha.app.pk}/data/sources").content.decode()
    assert "discover = false" in desk.get(f"/apps/{alpha.app.pk}/data/sources").content.decode()
    page = desk.post(path, {"match": "role=web"}, follow=True).content.decode()
    assert "No settings are pushed to “role=web” any more." in page
    assert not AgentSettings.objects.exists()


@pytest.mark.parametrize(
    "form",
    [
        {"match": "*", "off": "nonsense"},
        {"match": "*", "period_s": "0"},
        {"match": ""},
        {"match": "*", "tags": "host=x"},
        {"match": "*", "tags": "x"},
    ],
)
def test_an_invalid_form_pushes_nothing(desk: Client, alpha: Tenant, form: dict[str, str]) -> None:
    answer = desk.post(f"/apps/{alpha.app.pk}/data/sources/settings", form)
    page = answer.content.decode()
    assert (answer.status_code, page.count("Nothing was changed")) == (400, 1)
    assert all(f'value="{value}"' in page for value in form.values() if value)  # as it was filled in
    assert not AgentSettings.objects.exists()


def test_viewers_see_agents_and_push_nothing(client: Client, alpha: Tenant) -> None:
    client.force_login(alpha.viewer)
    agent(alpha)
    assert "web-1" in client.get(f"/apps/{alpha.app.pk}/data/sources").content.decode()
    assert client.post(f"/apps/{alpha.app.pk}/data/sources/settings", {"match": "*"}).status_code == 403


def test_every_snippet_names_the_site_and_the_token_or_key(desk: Client, alpha: Tenant) -> None:
    page = html.unescape(desk.get(f"/apps/{alpha.app.pk}/add-data").content.decode())
    values = {"base": "http://testserver", "token": "YOUR_TOKEN", "key": "YOUR_KEY", "sha256": agent_archive().sha256}
    for method in snippets.SEND_METHODS:
        texts = [snippets.fill_snippet(each.text, **values) for each in method.snippets]
        assert all(text in page for text in texts)
        assert "YOUR_TOKEN" in "".join(texts) or "YOUR_KEY" in "".join(texts)
        assert all("http://testserver" in text for text in texts)


def test_each_method_has_its_own_arrivals() -> None:
    names = [name for method in snippets.SEND_METHODS for name in method.arrivals]
    assert len(names) == len(set(names))


def test_names_of_variables_are_not_replaced() -> None:
    texts = [
        snippets.fill_snippet(each.text, base="https://BASE.example", token="spm_KEY", key="k", sha256="f00")
        for method in snippets.SEND_METHODS
        if method.name in ("agent", "statsd")
        for each in method.snippets
    ]
    assert [text.count("SPM_AGENT_TOKEN=spm_KEY") for text in texts] == [1, 0, 1, 1]
    assert all(text.count("https://BASE.example") for text in texts)


@pytest.mark.parametrize("way", snippets.NAMES)
def test_a_method_can_be_linked_to(desk: Client, alpha: Tenant, way: str) -> None:
    page = desk.get(f"/apps/{alpha.app.pk}/add-data?way={way}").content.decode()
    title = html.escape(next(each.title for each in snippets.SEND_METHODS if each.name == way))
    assert f'<details name="way" open><summary>{title} ' in page


def test_the_first_data_of_a_method_appears_once(desk: Client, alpha: Tenant) -> None:
    path = f"/apps/{alpha.app.pk}/add-data/arrivals"
    empty = desk.get(path).content.decode()
    known = empty.partition("?known=")[2].partition('"')[0]
    assert desk.get(f"{path}?known={known}").status_code == 204
    notes.see_arrival(alpha.app.pk, "telegraf", "web-1", SystemClock().now_ms())
    page = desk.get(f"{path}?known={known}").content.decode()
    assert "First data received ✓" in page
    assert '<span id="arrival-telegraf" hx-swap-oob="true" class="badge done">' in page
    known = page.partition("?known=")[2].partition('"')[0]
    assert desk.get(f"{path}?known={known}").status_code == 204


def test_a_method_with_two_protocols_shows_only_its_first_data(desk: Client, alpha: Tenant) -> None:
    now = SystemClock().now_ms()
    notes.see_arrival(alpha.app.pk, "influx", "second", now)
    notes.see_arrival(alpha.app.pk, "json", "first", now - 1_000)
    page = desk.get(f"/apps/{alpha.app.pk}/add-data/arrivals").content.decode()
    assert (page.count("> curl <small>from first"), page.count("> curl <small>")) == (1, 1)


def test_sources_that_lack_messages_are_shown_on_the_overview(desk: Client, alpha: Tenant) -> None:
    now = SystemClock().now_ms()
    notes.see_source(alpha.app.pk, "web-1", now - 7_200_000, period_ms=10_000)
    part = desk.get(f"/apps/{alpha.app.pk}/completeness").content.decode()
    assert "web-1" in part
    assert "0 %" in part
    [row] = desk.get(f"/api/v1/apps/{alpha.app.pk}/completeness?hours=24").json()
    assert (row["source"], row["got"], row["state"]) == ("web-1", 0, "gone")
    assert 715 <= row["expected"] <= 725
    assert row["silent"] == row["expected"]


@pytest.mark.parametrize("hours", ["0", "169", "x"])
def test_completeness_of_an_invalid_span_is_refused(desk: Client, alpha: Tenant, hours: str) -> None:
    assert desk.get(f"/api/v1/apps/{alpha.app.pk}/completeness?hours={hours}").status_code == 400


def test_the_agent_is_one_file_that_runs_alone(client: Client, tmp_path: Path) -> None:
    answer = client.get("/agent.pyz")
    assert answer.status_code == 200
    assert client.get("/agent.pyz", HTTP_IF_NONE_MATCH=answer["ETag"]).status_code == 304
    file = tmp_path / "agent.pyz"
    file.write_bytes(answer.content)
    process = subprocess.run(
        [sys.executable, file, "version"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert (process.stdout, process.stderr) == (f"{VERSION}\n", "")
    env = {"SPM_AGENT_CONFIG": "", "PATH": "/usr/bin"}
    once = subprocess.run(
        [sys.executable, file, "once"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60
    )
    assert "mem,host=" in once.stdout


@pytest.fixture
def bare_python(tmp_path: Path) -> Path:
    """A Python that has neither psutil nor pip, as a distribution's."""
    venv.create(tmp_path / "bare", with_pip=False)
    return tmp_path / "bare" / "bin" / "python"


def run_file(python: Path, folder: Path, command: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run one command of the agent's file in a folder of its own."""
    (folder / "agent.pyz").write_bytes(agent_archive().content)
    pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    environ = {"PATH": "/nowhere", "HOME": str(folder), "SPM_AGENT_CONFIG": "", **pip, **environ}
    words = [str(python), "agent.pyz", command]
    return subprocess.run(words, cwd=folder, env=environ, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_the_file_brings_its_own_psutil_to_a_python_without(bare_python: Path, tmp_path: Path) -> None:
    first = run_file(bare_python, tmp_path, "once")
    folder = tmp_path / "agent-psutil-{}.{}".format(*sys.version_info)
    assert f"spm-agent: psutil is missing: installing it into {folder}" in first.stderr
    assert "mem,host=" in first.stdout
    assert [path.name for path in folder.iterdir() if path.name == "psutil"] == ["psutil"]
    assert not list((tmp_path / "bare").rglob("psutil"))  # the host's Python is as it was
    assert run_file(bare_python, tmp_path, "version").stderr == ""


def test_the_file_says_in_one_sentence_that_psutil_cannot_be_had(bare_python: Path, tmp_path: Path) -> None:
    refused = run_file(bare_python, tmp_path, "version", PIP_NO_INDEX="1", PIP_FIND_LINKS="/nowhere")
    assert refused.returncode == 1
    assert "spm-agent: psutil is missing, and could not be installed: apt install python3-psutil" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_its_checksum_stands_beside_it_and_in_the_commands(desk: Client, alpha: Tenant, tmp_path: Path) -> None:
    for name in ("agent.pyz", "agent.pyz.sha256"):
        (tmp_path / name).write_bytes(Client().get(f"/{name}").content)
    check = ["sha256sum", "-c", "agent.pyz.sha256"]
    assert subprocess.run(check, cwd=tmp_path, capture_output=True, check=True).stdout == b"agent.pyz: OK\n"
    page = html.unescape(desk.get(f"/apps/{alpha.app.pk}/add-data").content.decode())
    command = f"echo '{agent_archive().sha256}  agent.pyz' | sha256sum -c &&"
    assert page.count(command) == page.count("curl -fsSO http://testserver/agent.pyz") == 3
    [checked] = re.findall(r"echo '\S+  agent.pyz' \| sha256sum -c", page)[:1]
    with (tmp_path / "agent.pyz").open("ab") as file:
        file.write(b"x")
    assert subprocess.run(["sh", "-c", checked], cwd=tmp_path, capture_output=True).returncode == 1


def test_two_processes_build_the_same_file() -> None:
    build = "from frontend.agent_file import agent_archive; print(agent_archive().sha256)"
    environments = [
        {"PYTHONHASHSEED": "1", "TZ": "UTC", "LC_ALL": "C"},
        {"PYTHONHASHSEED": "2", "TZ": "Asia/Tokyo", "LC_ALL": "C.UTF-8"},
    ]
    builds = [
        subprocess.run(
            [sys.executable, "-c", build], env={**os.environ, **each}, capture_output=True, text=True, check=True
        ).stdout.strip()
        for each in environments
    ]
    assert builds == [agent_archive().sha256] * 2


def test_the_file_holds_nothing_of_the_site() -> None:
    content = agent_archive().content
    names = zipfile.ZipFile(io.BytesIO(content)).namelist()
    assert not [name for name in names if "models" in name or "spm/settings/" in name or name.endswith(".pyc")]
    assert len(content) < 200_000
