"""What the agent is told: flags first, then the environment, then defaults.

The token comes from the environment or a file, not from a flag, where every user of the machine could read it.
"""

import argparse
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from spm import limits
from spm.errors import Refused


@dataclass(frozen=True, slots=True)
class Config:
    """All settings of one agent."""

    url: str
    token: str
    spool: Path
    spool_bytes: int
    period_ms: int
    host: str
    tags: Mapping[str, str]


def read(arguments: Sequence[str], environment: Mapping[str, str]) -> Config:
    """The settings, or ``Refused`` with what is missing or wrong."""
    flags = _parser().parse_args(arguments)
    told = {name: value for name, value in vars(flags).items() if value is not None}

    def setting(name: str, default: str = "") -> str:
        return str(told.get(name) or environment.get(f"SPM_AGENT_{name.upper()}") or default)

    host = setting("host", socket.gethostname())
    token = Path(flags.token_file).read_text().strip() if flags.token_file else environment.get("SPM_AGENT_TOKEN", "")
    if not token:
        raise Refused("no token", wanted="SPM_AGENT_TOKEN or --token-file", remedy="Make one on the page of the app.")
    if not token.isascii() or not token.isprintable() or len(token) > limits.AGENT_TOKEN_CHARS_MAX:
        raise Refused("not a token", wanted="the text as shown when it was made")
    return Config(
        url=setting("url", "http://127.0.0.1:8000"),
        token=token,
        spool=Path(setting("spool", _default_spool(environment))),
        spool_bytes=round(_number("spool_mb", setting("spool_mb", "64"), 1, 65_536) * 1_000_000),
        period_ms=round(_number("period_s", setting("period_s", "10"), 1, 3_600) * 1_000),
        host=_host(host),
        tags={"host": host, **_tags(setting("tags"))},
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="spm-agent", description="Watch this machine and push what is seen.")
    parser.add_argument("--url", help="where to push: http[s]:// or amqp[s]:// (SPM_AGENT_URL)")
    parser.add_argument("--token-file", help="file that holds the token (otherwise SPM_AGENT_TOKEN)")
    parser.add_argument("--spool", help="folder for messages that wait for the server (SPM_AGENT_SPOOL)")
    parser.add_argument("--spool-mb", help="its bound in megabytes, 64 by default (SPM_AGENT_SPOOL_MB)")
    parser.add_argument("--period-s", help="seconds between two looks, 10 by default (SPM_AGENT_PERIOD_S)")
    parser.add_argument("--host", help="the name of this machine (SPM_AGENT_HOST)")
    parser.add_argument("--tags", help="more tags for everything: name=value,name=value (SPM_AGENT_TAGS)")
    return parser


def _number(name: str, text: str, least: float, most: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        raise Refused(f"{name} is out of range", got=text, wanted=f"{least:g} to {most:g}")
    return value


def _host(text: str) -> str:
    if not text.isascii() or not text.isprintable() or len(text) > limits.SOURCE_BYTES_MAX:
        raise Refused("not a host name", got=repr(text[:80]), wanted=f"at most {limits.SOURCE_BYTES_MAX} plain signs")
    return text


def _tags(text: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    if wrong := [name for name, equals, value in pairs if not (equals and name.strip() and value.strip())]:
        raise Refused("tags need a name and a value", got=", ".join(wrong), wanted="name=value,name=value")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _default_spool(environment: Mapping[str, str]) -> str:
    state = environment.get("XDG_STATE_HOME") or os.path.join(environment.get("HOME", "/var/lib"), ".local", "state")
    return os.path.join(state, "spm-agent")
