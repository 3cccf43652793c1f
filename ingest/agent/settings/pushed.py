"""Settings that the server pushes: which of them an agent applies, and why it refuses the others.

``config.SETTINGS`` says which settings may be pushed: those that can only make the agent send more or less of what its
host already sends. A setting that names an address, a file or a program is always refused. A setting that the machine
itself has set (flag, environment, file) is refused, too: the owner of the machine decides. ``check_settings`` is pure.
Applied settings are stored beside the spool (``load``, ``save``), so that they survive a restart while the server is
away.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ingest.agent.settings.config import SETTINGS
from spm import limits
from spm.errors import Refused

_SAFE = {setting.name: setting for setting in SETTINGS if setting.pushable}
_FILE = "pushed.json"


@dataclass(frozen=True, slots=True)
class PushedSettings:
    """The settings that are applied, the refused ones with their reasons, and the server's etag."""

    etag: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)


def check_settings(etag: str, given: Any, origins: Mapping[str, str]) -> PushedSettings:
    """Returns the settings that are safe and not set on the machine. ``origins``: the origin of each own setting."""
    if not isinstance(given, dict) or len(json.dumps(given)) > limits.AGENT_SETTINGS_BYTES_MAX:
        return PushedSettings(etag, {}, {"*": "not a table of settings, or too large"})
    settings: dict[str, Any] = {}
    refused: dict[str, str] = {}
    for name, value in given.items():
        if name not in _SAFE:
            refused[name] = f"only {', '.join(sorted(_SAFE))} may be set from outside"
        elif (origin := origins.get(name, "default")) not in ("default", "server"):
            refused[name] = f"set on the host ({origin})"
        else:
            try:
                if name == "tags" and isinstance(value, dict) and "host" in value:
                    raise Refused("only the host itself sets the tag host")
                _SAFE[name].read(name, value)
                settings[name] = value
            except Refused as error:
                refused[name] = str(error)
    return PushedSettings(etag, settings, refused)


def load(folder: Path) -> PushedSettings:
    """Returns the settings that were applied last; none if they cannot be read."""
    try:
        stored = json.loads((folder / _FILE).read_bytes())
        return PushedSettings(str(stored["etag"]), dict(stored["settings"]), dict(stored["refused"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return PushedSettings()


def save(folder: Path, pushed: PushedSettings) -> None:
    """Store settings for ``load``. If the disk fails, only the settings after a restart are affected."""
    text = json.dumps({"etag": pushed.etag, "settings": dict(pushed.settings), "refused": dict(pushed.refused)})
    temporary = folder / f"{_FILE}.new"
    with suppress(OSError):
        temporary.write_text(text)
        temporary.replace(folder / _FILE)
