"""Flags come before environment and defaults; missing or wrong settings are reported."""

from pathlib import Path

import pytest

from ingest.agent.settings.config import read
from spm.errors import Refused

TOKEN = {"SPM_AGENT_TOKEN": "t", "HOME": "/home/a"}


def test_a_token_is_all_an_agent_needs() -> None:
    settings = read([], TOKEN)
    assert settings.period_ms == 10_000
    assert settings.host
    assert settings.labels == {"host": settings.host}
    assert settings.spool == Path("/home/a/.local/state/spm-agent")


def test_flags_go_before_the_environment() -> None:
    environment = {**TOKEN, "SPM_AGENT_URL": "http://env", "SPM_AGENT_HOST": "env", "SPM_AGENT_TAGS": "a=b, c=d"}
    settings = read(["--url", "http://flag", "--period-s", "2.5"], environment)
    assert (settings.url, settings.host, settings.period_ms) == ("http://flag", "env", 2_500)
    assert settings.labels == {"host": "env", "a": "b", "c": "d"}


def test_the_token_may_come_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("spm_x\n")
    assert read(["--token-file", str(tmp_path / "token")], {"HOME": "/"}).token == "spm_x"


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"SPM_AGENT_TOKEN": ""}, "no token"),
        ({"SPM_AGENT_TOKEN": "a\nb"}, "not a token"),
        ({"SPM_AGENT_TOKEN": "t" * 513}, "not a token"),
        ({"SPM_AGENT_PERIOD_S": "0.5"}, "period_s"),
        ({"SPM_AGENT_PERIOD_S": "soon"}, "period_s"),
        ({"SPM_AGENT_SPOOL_MB": "0"}, "spool_mb"),
        ({"SPM_AGENT_TAGS": "a"}, "tags"),
        ({"SPM_AGENT_TAGS": "=b"}, "tags"),
        ({"SPM_AGENT_HOST": "a\r\nX-Evil: 1"}, "host"),
        ({"SPM_AGENT_HOST": "h" * 256}, "host"),
    ],
)
def test_wrong_settings_are_reported(environment: dict[str, str], message: str) -> None:
    with pytest.raises(Refused, match=message):
        read([], {**TOKEN, **environment})
