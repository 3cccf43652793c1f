"""Reads the agent's settings. Each setting has five origins; the first one that has a value wins:

    1. a flag    2. the environment, SPM_AGENT_…    3. the configuration file    4. the server    5. the default

So the machine overrides the server. The file is TOML with the names of the settings, and tables of services
(``[[redis]]``). A token comes from the environment or a file, not from a flag, which every user of the machine could
read. A wrong or unknown setting is ``Refused``. Enter by ``read``; ``SETTINGS`` lists all settings.
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

from ingest.agent.collect.registry import KINDS, SYSTEM
from ingest.agent.server.connector import Tls
from spm import limits
from spm.errors import Refused

FILE = "/etc/spm-agent/agent.toml"
_BOOLEANS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


@dataclass(frozen=True, slots=True)
class Target:
    """A service to watch: its kind, and its validated options."""

    kind: str
    options: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The name of its collector."""
        return KINDS[self.kind].label(self.options)


@dataclass(frozen=True, slots=True)
class Config:
    """All settings of one agent. ``origins``: where each setting comes from; ``file``: the configuration file."""

    url: str
    token: str
    spool: Path
    spool_bytes: int
    period_ms: int
    host: str
    labels: Mapping[str, str]
    tls: Tls = Tls()  # noqa: RUF009  # frozen
    proxy: str = ""
    api_url: str = ""
    discover: bool = True
    off: frozenset[str] = frozenset()
    targets: tuple[Target, ...] = ()
    origins: Mapping[str, str] = field(default_factory=dict)
    file: str = ""

    @property
    def collect_timeout_s(self) -> float:
        """How long a collection waits for its collectors."""
        return min(limits.AGENT_COLLECT_S, self.period_ms / 2_000)


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. ``read`` converts a text or a value of TOML; ``Refused``: the value is wrong."""

    name: str
    read: Callable[[str, Any], Any]
    help: str
    default: Any = ""
    pushable: bool = False
    flag: bool = True


def number_reader(least: float, most: float) -> Callable[[str, Any], float]:
    """Returns a reader of numbers between two bounds."""

    def read_number(name: str, given: Any) -> float:
        try:
            value = float(given) if not isinstance(given, bool) else float("nan")
        except (TypeError, ValueError):
            value = float("nan")
        if not least <= value <= most:
            raise Refused(f"{name} is out of range", got=repr(given)[:60], wanted=f"{least:g} to {most:g}")
        return value

    return read_number


def read_boolean(name: str, given: Any) -> bool:
    """Reads true or false."""
    known = given if isinstance(given, bool) else _BOOLEANS.get(str(given).lower())
    if known is None:
        raise Refused(f"{name} is neither true nor false", got=repr(given)[:60], wanted="true or false")
    return bool(known)


def read_text(name: str, given: Any) -> str:
    """Reads one line of text."""
    if not isinstance(given, str) or not (given.isprintable() and len(given) <= 2_000):
        raise Refused(f"{name} is no text", got=repr(given)[:60], wanted="a text of one line")
    return given


def read_host_name(name: str, given: Any) -> str:
    """Reads a name that a source may have."""
    if not isinstance(given, str) or not given.isascii() or not given.isprintable() or not given:
        raise Refused("not a host name", got=repr(given)[:80], wanted=f"at most {limits.SOURCE_BYTES_MAX} plain signs")
    if len(given) > limits.SOURCE_BYTES_MAX:
        raise Refused("not a host name", got=repr(given[:80]), wanted=f"at most {limits.SOURCE_BYTES_MAX} plain signs")
    return given


def read_labels(name: str, given: Any) -> dict[str, str]:
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
    if len(pairs) > limits.AGENT_LABELS_MAX:
        raise Refused(f"too many {name}", got=len(pairs), wanted=f"at most {limits.AGENT_LABELS_MAX}")
    return {key: read_text(f"{name}.{key}"[:60], value) for key, value, _ in pairs}


def read_collector_names(name: str, given: Any) -> frozenset[str]:
    """Reads names of collectors: of the machine's collectors, of kinds, or ``kind:place``."""
    parts = [part.strip() for part in given.split(",")] if isinstance(given, str) else given
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise Refused(f"{name} is no list of names", got=repr(given)[:60], wanted='["processes", "redis"]')
    known = {*SYSTEM, *KINDS, "itself"}
    for part in filter(None, parts):
        if part.partition(":")[0] not in known:
            raise _unknown(f"{name} names no collector", part, known)
    return frozenset(filter(None, parts))


SETTINGS = (
    Setting("url", read_text, "address to push to: http[s]:// or amqp[s]://", "http://127.0.0.1:8000"),
    Setting("token_file", read_text, "file that holds the token (otherwise SPM_AGENT_TOKEN)"),
    Setting("host", read_host_name, "the name of this machine"),
    Setting("tags", read_labels, "labels for all samples: name=value,name=value", {}, pushable=True),
    Setting("period_s", number_reader(1, 3_600), "seconds between two collections, 10 by default", 10.0, pushable=True),
    Setting("spool", read_text, "folder for messages that wait for the server"),
    Setting("spool_mb", number_reader(1, 65_536), "size limit of the spool in megabytes, 64 by default", 64.0),
    Setting(
        "discover", read_boolean, "watch the services that listen on this host: true (default) or false", True, True
    ),
    Setting(
        "off",
        read_collector_names,
        "disabled collectors: cpu, processes, redis, redis:127.0.0.1:6379…",
        frozenset(),
        True,
    ),
    Setting("ca_file", read_text, "PEM file of the authority that signed the server's certificate"),
    Setting("cert_file", read_text, "PEM file of a client certificate"),
    Setting("key_file", read_text, "PEM file of its key, if cert_file does not hold the key"),
    Setting("proxy", read_text, "http://[user:password@]host:port, or none; HTTPS_PROXY and NO_PROXY count if not set"),
    Setting("api_url", read_text, "address of the site, for heartbeats if the url is amqp://"),
)
_BY_NAME = {setting.name: setting for setting in SETTINGS}
_FILE_ONLY = ("token",)


def flag_parser(prog: str = "spm-agent") -> argparse.ArgumentParser:
    """Returns the parser of the flags that all commands have."""
    flags = argparse.ArgumentParser(prog=prog, add_help=False)
    flags.add_argument("--config", help=f"configuration file, {FILE} by default (SPM_AGENT_CONFIG)")
    for setting in SETTINGS:
        flag = f"--{setting.name.replace('_', '-')}"
        flags.add_argument(flag, help=f"{setting.help} (SPM_AGENT_{setting.name.upper()})")
    return flags


def read(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    pushed: Mapping[str, Any] | None = None,
    need_token: bool = True,
) -> Config:
    """Returns the settings; ``Refused``: one is missing or wrong."""
    flags = vars(flag_parser().parse_args(arguments))
    path, table = _file(flags["config"], environment)
    tables = {kind: table.pop(kind) for kind in list(table) if kind in KINDS}
    for name in table:
        if name not in _BY_NAME and name not in _FILE_ONLY:
            raise _unknown(f"{path}: unknown setting", name, {*_BY_NAME, *KINDS})
    env = {name: environment.get(f"SPM_AGENT_{name.upper()}") or None for name in _BY_NAME}
    layers = (("flag", flags), ("environment", env), ("file", table), ("server", pushed or {}))
    values, origins = {}, {}
    for setting in SETTINGS:
        present = ((origin, layer[setting.name]) for origin, layer in layers if layer.get(setting.name) is not None)
        origin, given = next(present, ("default", None))
        values[setting.name] = setting.default if origin == "default" else _read_value(path, origin, setting, given)
        origins[setting.name] = origin
    token = _token(flags["token_file"], environment, table) if need_token else ""
    return _config(values, origins, environment, token, _targets(tables), path)


def _config(
    values: Mapping[str, Any],
    origins: Mapping[str, str],
    environment: Mapping[str, str],
    token: str,
    targets: tuple[Target, ...],
    path: str,
) -> Config:
    host = values["host"] or read_host_name("host", socket.gethostname() or "localhost")
    return Config(
        url=values["url"],
        token=token,
        spool=Path(values["spool"] or _default_spool(environment)),
        spool_bytes=round(values["spool_mb"] * 1_000_000),
        period_ms=round(values["period_s"] * 1_000),
        host=host,
        labels={"host": host, **values["tags"]},
        tls=Tls(values["ca_file"], values["cert_file"], values["key_file"]),
        proxy=values["proxy"],
        api_url=values["api_url"],
        discover=values["discover"],
        off=values["off"],
        targets=targets,
        origins=origins,
        file=path,
    )


def _read_value(path: str, origin: str, setting: Setting, given: Any) -> Any:
    try:
        return setting.read(setting.name, given)
    except Refused as error:
        if origin != "file":
            raise
        raise Refused(f"{path}: {error.what}", got=error.got, wanted=error.wanted, remedy=error.remedy) from None


def _file(flag: str | None, environment: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """Returns path and content of the configuration file; empty if none is named and the default one is missing."""
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
        raise Refused("no token", wanted="SPM_AGENT_TOKEN or --token-file", remedy="Create one on the page of the app.")
    if not token.isascii() or not token.isprintable() or len(token) > limits.AGENT_TOKEN_CHARS_MAX:
        raise Refused("not a token", wanted="the text as shown when it was created")
    return token


def _token_in(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Refused("the token's file cannot be read", got=str(error)) from None


def _targets(tables: Mapping[str, Any]) -> tuple[Target, ...]:
    targets = []
    for kind, listed in tables.items():
        for table in listed if isinstance(listed, list) else [listed]:
            targets.append(Target(kind, KINDS[kind].read(table)))
    names = [target.name for target in targets]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise Refused("two services have the same name", got=", ".join(twice)[:120], remedy="Give each a name = …")
    if len(targets) > limits.AGENT_TARGETS_MAX:
        raise Refused("too many services", got=len(targets), wanted=f"at most {limits.AGENT_TARGETS_MAX}")
    return tuple(targets)


def _unknown(what: str, name: str, known: set[str]) -> Refused:
    near = get_close_matches(name, known, 1)
    return Refused(
        what, got=name[:80], wanted=", ".join(sorted(known)), remedy=f"Did you mean {near[0]}?" if near else ""
    )


def _default_spool(environment: Mapping[str, str]) -> str:
    state = environment.get("XDG_STATE_HOME") or os.path.join(environment.get("HOME", "/var/lib"), ".local", "state")
    return os.path.join(state, "spm-agent")
