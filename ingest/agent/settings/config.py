"""What the agent is told, each setting by one of five ways; the first that says something wins:

    1. a flag    2. the environment, SPM_AGENT_…    3. the configuration file    4. the server    5. the default

So the machine has the last word over the server. The file is TOML: the same names, and tables of services
(``[[redis]]``). A token comes from the environment or a file, not from a flag, where every user of the machine could
read it. Whatever is wrong or unknown is ``Refused`` with its place. Enter by ``read``; ``SETTINGS`` lists them all.
"""

import argparse
import os
import socket
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ingest.agent.collect import KINDS, SYSTEM
from ingest.agent.server.web import Tls
from spm import limits
from spm.errors import Refused

FILE = "/etc/spm-agent/agent.toml"
_TRUTHS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


@dataclass(frozen=True, slots=True)
class Target:
    """A service to be watched: its kind, and its checked options."""

    kind: str
    options: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Of its collector."""
        return KINDS[self.kind].label(self.options)


@dataclass(frozen=True, slots=True)
class Config:
    """All settings of one agent; ``origins``: which way each of them came, ``file``: the one that was read."""

    url: str
    token: str
    spool: Path
    spool_bytes: int
    period_ms: int
    host: str
    tags: Mapping[str, str]
    tls: Tls = Tls()  # noqa: RUF009  # frozen
    proxy: str = ""
    api_url: str = ""
    discover: bool = True
    off: frozenset[str] = frozenset()
    targets: tuple[Target, ...] = ()
    origins: Mapping[str, str] = field(default_factory=dict)
    file: str = ""

    @property
    def patience_s(self) -> float:
        """How long a look waits for its collectors."""
        return min(limits.AGENT_LOOK_S, self.period_ms / 2_000)


@dataclass(frozen=True, slots=True)
class Setting:
    """One of them. ``read`` takes a text or what TOML gives, and says what is wrong."""

    name: str
    read: Callable[[str, Any], Any]
    help: str
    default: Any = ""
    pushable: bool = False
    flag: bool = True


def number(least: float, most: float) -> Callable[[str, Any], float]:
    """Reads a number between two bounds."""

    def read_number(name: str, given: Any) -> float:
        try:
            value = float(given) if not isinstance(given, bool) else float("nan")
        except (TypeError, ValueError):
            value = float("nan")
        if not least <= value <= most:
            raise Refused(f"{name} is out of range", got=repr(given)[:60], wanted=f"{least:g} to {most:g}")
        return value

    return read_number


def truth(name: str, given: Any) -> bool:
    """Reads true or false."""
    known = given if isinstance(given, bool) else _TRUTHS.get(str(given).lower())
    if known is None:
        raise Refused(f"{name} is neither true nor false", got=repr(given)[:60], wanted="true or false")
    return bool(known)


def text(name: str, given: Any) -> str:
    """Reads one line of text."""
    if not isinstance(given, str) or not (given.isprintable() and len(given) <= 2_000):
        raise Refused(f"{name} is no text", got=repr(given)[:60], wanted="a text of one line")
    return given


def host_name(name: str, given: Any) -> str:
    """Reads what a source may be called."""
    if not isinstance(given, str) or not given.isascii() or not given.isprintable() or not given:
        raise Refused("not a host name", got=repr(given)[:80], wanted=f"at most {limits.SOURCE_BYTES_MAX} plain signs")
    if len(given) > limits.SOURCE_BYTES_MAX:
        raise Refused("not a host name", got=repr(given[:80]), wanted=f"at most {limits.SOURCE_BYTES_MAX} plain signs")
    return given


def tags_of(name: str, given: Any) -> dict[str, str]:
    """Reads ``name=value,name=value`` or a table."""
    if isinstance(given, str):
        parts = [part.partition("=") for part in given.split(",") if part.strip()]
        pairs = [(key.strip(), value.strip(), bool(equals)) for key, equals, value in parts]
    elif isinstance(given, dict):
        pairs = [(key, value, isinstance(value, str)) for key, value in given.items()]
    else:
        pairs = [(repr(given)[:60], "", False)]
    if wrong := [str(key) for key, value, good in pairs if not (good and key and value)]:
        raise Refused(f"{name} need a name and a value", got=", ".join(wrong)[:80], wanted="name=value,name=value")
    if len(pairs) > limits.AGENT_TAGS_MAX:
        raise Refused(f"too many {name}", got=len(pairs), wanted=f"at most {limits.AGENT_TAGS_MAX}")
    return {key: text(f"{name}.{key}"[:60], value) for key, value, _ in pairs}


def names_of(name: str, given: Any) -> frozenset[str]:
    """Reads names of collectors: of the machine's, of kinds, or ``kind:place``."""
    parts = [part.strip() for part in given.split(",")] if isinstance(given, str) else given
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise Refused(f"{name} is no list of names", got=repr(given)[:60], wanted='["processes", "redis"]')
    known = {*SYSTEM, *KINDS, "itself"}
    for part in filter(None, parts):
        if part.partition(":")[0] not in known:
            raise _unknown(f"{name} names no collector", part, known)
    return frozenset(filter(None, parts))


SETTINGS = (
    Setting("url", text, "where to push: http[s]:// or amqp[s]://", "http://127.0.0.1:8000"),
    Setting("token_file", text, "file that holds the token (otherwise SPM_AGENT_TOKEN)"),
    Setting("host", host_name, "the name of this machine"),
    Setting("tags", tags_of, "more tags for everything: name=value,name=value", {}, pushable=True),
    Setting("period_s", number(1, 3_600), "seconds between two looks, 10 by default", 10.0, pushable=True),
    Setting("spool", text, "folder for messages that wait for the server"),
    Setting("spool_mb", number(1, 65_536), "its bound in megabytes, 64 by default", 64.0),
    Setting("discover", truth, "watch the services that listen on this host: true (default) or false", True, True),
    Setting("off", names_of, "collectors not wanted: cpu, processes, redis, redis:127.0.0.1:6379…", frozenset(), True),
    Setting("ca_file", text, "PEM file of the authority that signed the server's certificate"),
    Setting("cert_file", text, "PEM file of a client certificate"),
    Setting("key_file", text, "PEM file of its key, if that is not in it"),
    Setting("proxy", text, "http://[user:password@]host:port, or none; otherwise HTTPS_PROXY and the like count"),
    Setting("api_url", text, "where heartbeats go if the url is amqp://: the address of the site"),
)
_BY_NAME = {setting.name: setting for setting in SETTINGS}
_FILE_ONLY = ("token",)


def parser(prog: str = "spm-agent") -> argparse.ArgumentParser:
    """Flags of every command."""
    made = argparse.ArgumentParser(prog=prog, add_help=False)
    made.add_argument("--config", help=f"configuration file, {FILE} by default (SPM_AGENT_CONFIG)")
    for setting in SETTINGS:
        flag = f"--{setting.name.replace('_', '-')}"
        made.add_argument(flag, help=f"{setting.help} (SPM_AGENT_{setting.name.upper()})")
    return made


def read(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    pushed: Mapping[str, Any] | None = None,
    need_token: bool = True,
) -> Config:
    """The settings, or ``Refused`` with what is missing or wrong."""
    flags = vars(parser().parse_args(arguments))
    path, table = _file(flags["config"], environment)
    tables = {kind: table.pop(kind) for kind in list(table) if kind in KINDS}
    for name in table:
        if name not in _BY_NAME and name not in _FILE_ONLY:
            raise _unknown(f"{path}: unknown setting", name, {*_BY_NAME, *KINDS})
    env = {name: environment.get(f"SPM_AGENT_{name.upper()}") or None for name in _BY_NAME}
    layers = (("flag", flags), ("environment", env), ("file", table), ("server", pushed or {}))
    chosen, origins = {}, {}
    for setting in SETTINGS:
        found = ((way, layer[setting.name]) for way, layer in layers if layer.get(setting.name) is not None)
        way, given = next(found, ("default", None))
        chosen[setting.name] = setting.default if way == "default" else _at(path, way, setting, given)
        origins[setting.name] = way
    token = _token(flags["token_file"], environment, table) if need_token else ""
    return _config(chosen, origins, environment, token, _targets(tables), path)


def _config(
    chosen: Mapping[str, Any],
    origins: Mapping[str, str],
    environment: Mapping[str, str],
    token: str,
    targets: tuple[Target, ...],
    path: str,
) -> Config:
    host = chosen["host"] or host_name("host", socket.gethostname() or "localhost")
    return Config(
        url=chosen["url"],
        token=token,
        spool=Path(chosen["spool"] or _default_spool(environment)),
        spool_bytes=round(chosen["spool_mb"] * 1_000_000),
        period_ms=round(chosen["period_s"] * 1_000),
        host=host,
        tags={"host": host, **chosen["tags"]},
        tls=Tls(chosen["ca_file"], chosen["cert_file"], chosen["key_file"]),
        proxy=chosen["proxy"],
        api_url=chosen["api_url"],
        discover=chosen["discover"],
        off=chosen["off"],
        targets=targets,
        origins=origins,
        file=path,
    )


def _at(path: str, way: str, setting: Setting, given: Any) -> Any:
    try:
        return setting.read(setting.name, given)
    except Refused as error:
        if way != "file":
            raise
        raise Refused(f"{path}: {error.what}", got=error.got, wanted=error.wanted, remedy=error.remedy) from None


def _file(flag: str | None, environment: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """The configuration file's path and content; none if nobody named one and the usual one is not there."""
    named = flag or environment.get("SPM_AGENT_CONFIG")
    path = Path(named or FILE)
    if not named and ("SPM_AGENT_CONFIG" in environment or not path.exists()):
        return "", {}
    try:
        if path.stat().st_size > limits.AGENT_CONFIG_BYTES_MAX:
            raise Refused(f"{path} is too large", wanted=f"at most {limits.AGENT_CONFIG_BYTES_MAX:,} bytes")
        return str(path), tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise Refused("the configuration cannot be read", got=str(error)) from None
    except tomllib.TOMLDecodeError as error:
        raise Refused(f"{path} is no TOML", got=str(error)) from None


def _token(flag: str | None, environment: Mapping[str, str], table: Mapping[str, Any]) -> str:
    env = environment.get
    if flag or not (env("SPM_AGENT_TOKEN") or env("SPM_AGENT_TOKEN_FILE") or table.get("token")):
        file = flag or table.get("token_file") or ""
        token = _token_in(file) if file else ""
    else:
        token = env("SPM_AGENT_TOKEN") or (
            _token_in(env("SPM_AGENT_TOKEN_FILE", "")) if env("SPM_AGENT_TOKEN_FILE") else str(table.get("token", ""))
        )
    if not token:
        raise Refused("no token", wanted="SPM_AGENT_TOKEN or --token-file", remedy="Make one on the page of the app.")
    if not token.isascii() or not token.isprintable() or len(token) > limits.AGENT_TOKEN_CHARS_MAX:
        raise Refused("not a token", wanted="the text as shown when it was made")
    return token


def _token_in(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Refused("the token's file cannot be read", got=str(error)) from None


def _targets(tables: Mapping[str, Any]) -> tuple[Target, ...]:
    found = []
    for kind, listed in tables.items():
        for table in listed if isinstance(listed, list) else [listed]:
            found.append(Target(kind, KINDS[kind].read(table)))
    names = [target.name for target in found]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise Refused("two services have the same name", got=", ".join(twice)[:120], remedy="Give each a name = …")
    if len(found) > limits.AGENT_TARGETS_MAX:
        raise Refused("too many services", got=len(found), wanted=f"at most {limits.AGENT_TARGETS_MAX}")
    return tuple(found)


def _unknown(what: str, name: str, known: set[str]) -> Refused:
    near = get_close_matches(name, known, 1)
    return Refused(
        what, got=name[:80], wanted=", ".join(sorted(known)), remedy=f"Did you mean {near[0]}?" if near else ""
    )


def _default_spool(environment: Mapping[str, str]) -> str:
    state = environment.get("XDG_STATE_HOME") or os.path.join(environment.get("HOME", "/var/lib"), ".local", "state")
    return os.path.join(state, "spm-agent")
