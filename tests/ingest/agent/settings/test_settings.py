"""The five origins of a setting in their order; wrong settings are reported; pushed settings are checked."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from ingest.agent import install
from ingest.agent.server.connector import ServerConnector, bypasses_proxy
from ingest.agent.settings import pushed
from ingest.agent.settings.config import SETTINGS, read
from spm.errors import Refused

TOKEN = {"SPM_AGENT_TOKEN": "t", "HOME": "/home/a", "SPM_AGENT_CONFIG": ""}


def file(folder: Path, text: str) -> str:
    path = folder / "agent.toml"
    path.write_text(text)
    return str(path)


def test_flags_win_over_the_environment_over_the_file_over_the_server_over_the_default(tmp_path: Path) -> None:
    path = file(tmp_path, 'url = "http://file"\nhost = "file"\nperiod_s = 20\n')
    environment = {**TOKEN, "SPM_AGENT_CONFIG": path, "SPM_AGENT_URL": "http://env", "SPM_AGENT_HOST": "env"}
    config = read(["--url", "http://flag"], environment, pushed={"period_s": 30, "discover": False})
    assert (config.url, config.host, config.period_ms, config.discover) == ("http://flag", "env", 20_000, False)
    assert config.spool_bytes == 64_000_000
    origins = [config.origins[name] for name in ("url", "host", "period_s", "discover", "spool_mb")]
    assert origins == ["flag", "environment", "file", "server", "default"]


def test_a_file_names_services_and_everything_else(tmp_path: Path) -> None:
    path = file(
        tmp_path,
        """
token = "spm_x"
tags = { role = "web" }
off = ["processes"]
discover = false
proxy = "none"
[[redis]]
address = "10.0.0.1:6379"
tags = { shard = "1" }
[[redis]]
address = "10.0.0.2:6379"
[[command]]
name = "backup"
run = ["/bin/true"]
every_s = 3600
""",
    )
    config = read(["--config", path], {"HOME": "/"})
    assert (config.token, config.labels["role"], config.off, config.discover) == (
        "spm_x",
        "web",
        frozenset({"processes"}),
        False,
    )
    assert [target.name for target in config.targets] == [
        "redis:10.0.0.1:6379",
        "redis:10.0.0.2:6379",
        "command:backup",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('ulr = "x"', "unknown setting; got ulr.*Did you mean url"),
        ("period_s = 0.5", "period_s is out of range"),
        ("period_s = true", "period_s is out of range"),
        ('url = ["a"]', "url is no text"),
        ('discover = "perhaps"', "neither true nor false"),
        ("tags = { a = 1 }", "tags need a name and a value"),
        ('tags = { a = "x\\ny" }', "no text"),
        ('off = ["procesess"]', "names no collector.*Did you mean processes"),
        ("off = 3", "no list of names"),
        ("[[redis]]\nadress = 1", "unknown option.*Did you mean address"),
        ('[[redis]]\naddress = "a"\n[[redis]]\naddress = "a"', "same name"),
        ("a = [", "is no TOML"),
        ("\xff", "no TOML"),
        ('host = ""', "not a host name"),
        ("[[prometheus]]", "lacks url"),
        ("redis = 3", "no table"),
    ],
)
def test_wrong_settings_of_the_file_are_reported(tmp_path: Path, text: str, message: str) -> None:
    path = file(tmp_path, text)
    with pytest.raises(Refused, match=f"(?s){message}"):
        read(["--config", path], TOKEN)


def test_a_named_file_must_exist() -> None:
    with pytest.raises(Refused, match="cannot be read"):
        read(["--config", "/no/such/agent.toml"], TOKEN)


def test_a_configuration_file_that_is_too_large_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="too large"):
        read(["--config", file(tmp_path, "#" * 200_000)], TOKEN)


def test_the_token_of_a_flag_wins_over_all_others(tmp_path: Path) -> None:
    for name in ("flag", "env"):
        (tmp_path / name).write_text(f"from-{name}\n")
    path = file(tmp_path, 'token = "from-file"')
    env = {"HOME": "/", "SPM_AGENT_CONFIG": path, "SPM_AGENT_TOKEN_FILE": str(tmp_path / "env")}
    assert read(["--token-file", str(tmp_path / "flag")], {**env, "SPM_AGENT_TOKEN": "t"}).token == "from-flag"
    assert read([], {**env, "SPM_AGENT_TOKEN": "from-env"}).token == "from-env"
    assert read([], env).token == "from-env"
    assert read([], {"HOME": "/", "SPM_AGENT_CONFIG": path}).token == "from-file"


# --- pushed -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [setting.name for setting in SETTINGS if not setting.pushable] + ["command", "token", "x"]
)
def test_pushed_settings_that_could_harm_the_host_are_refused(name: str) -> None:
    judged = pushed.check_settings("e", {name: "http://evil", "period_s": 30}, {})
    assert judged.settings == {"period_s": 30}
    assert list(judged.refused) == [name]


def test_pushed_settings_that_the_host_has_set_are_refused_with_their_origin() -> None:
    judged = pushed.check_settings("e", {"period_s": 30, "off": ["cpu"]}, {"period_s": "file", "off": "default"})
    assert (judged.settings, judged.refused) == ({"off": ["cpu"]}, {"period_s": "set on the host (file)"})


@pytest.mark.parametrize(
    "given",
    [
        {"period_s": 0},
        {"period_s": []},
        {"tags": {"host": "x"}},
        {"tags": [1]},
        {"off": ["x"]},
        {"off": {}},
        {"discover": "?"},
        {"tags": {"a": "b" * 20_000}},
        [1],
        None,
        7,
    ],
)
def test_pushed_settings_that_are_wrong_change_nothing(given: Any) -> None:
    judged = pushed.check_settings("e", given, {})
    assert not judged.settings
    assert judged.refused


@pytest.mark.parametrize("raw", [b"", b"{}", b'{"etag": 1, "settings": 2, "refused": 3}', b"[" * 5_000])
def test_stored_settings_that_cannot_be_read_are_none(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "pushed.json").write_bytes(raw)
    assert pushed.load(tmp_path) == pushed.PushedSettings()


def test_stored_settings_are_loaded(tmp_path: Path) -> None:
    judged = pushed.check_settings("e", {"tags": {"a": "b"}, "url": "x"}, {})
    pushed.save(tmp_path, judged)
    assert pushed.load(tmp_path) == judged
    assert json.loads((tmp_path / "pushed.json").read_bytes())["etag"] == "e"


# --- the connection to the server -------------------------------------------------------------------------------------


def test_a_proxy_comes_from_the_settings_else_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://env:3128")
    monkeypatch.setenv("NO_PROXY", "localhost,.intern.example")
    named = {
        url: getattr(ServerConnector(url, proxy=proxy).proxy, "hostname", None)
        for url, proxy in (
            ("http://a.example", ""),
            ("http://b.example", "http://own:1"),
            ("http://c.example", "none"),
            ("http://x.intern.example", ""),
            ("http://localhost:8000", ""),
        )
    }
    assert list(named.values()) == ["env", "own", None, None, None]


@pytest.mark.parametrize("proxy", ["https://a", "socks5://a", "a:3128", "http://"])
def test_a_bad_proxy_is_rejected_without_its_password(proxy: str) -> None:
    with pytest.raises(Refused, match="not a proxy") as caught:
        ServerConnector("http://a.example", proxy=proxy.replace("//", "//u:geheim@"))
    assert proxy == "a:3128" or "geheim" not in str(caught.value)


@pytest.mark.parametrize(
    ("host", "names", "passed"),
    [
        ("a.b", "a.b", True),
        ("x.a.b", "a.b", True),
        ("xa.b", "a.b", False),
        ("a", "*", True),
        ("a", "", False),
        ("a", " , a:80 ", True),
    ],
)
def test_hosts_in_no_proxy_are_reached_directly(host: str, names: str, passed: bool) -> None:
    assert bypasses_proxy(host, names) is passed


def test_the_printed_unit_bounds_the_agent_and_shows_no_token(tmp_path: Path) -> None:
    own = read(["--url", "https://spm.example", "--tags", 'role=web "1"'], {**TOKEN, "SPM_AGENT_TOKEN": "geheim"})
    text = install.systemd_unit(own)
    for line in ("DynamicUser=yes", "MemoryMax=128M", "Restart=always", '#   url = "https://spm.example"'):
        assert line in text
    assert "geheim" not in text
    settings = [line.removeprefix("#   ") for line in text.splitlines() if line.startswith("#   ")]
    assert tomllib.loads("\n".join(settings))["tags"] == {"role": 'web "1"'}
