"""Settings that the server pushes: which of them an agent applies, and what it says about the others.

Safe are those that can only make it send more or less of what its host already shows: ``period_s``, ``tags``, ``off``,
``discover``. Whatever would name a place to send to or to ask, a file, or a program to run is refused, whoever pushes
it; and so is what the machine itself has set (flag, environment, file): its owner has the last word. ``judge`` is pure.
What was applied is kept beside the spool (``load``, ``keep``), so that a restart without the server goes on with it.
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
class Pushed:
    """What is applied, what is refused and why, and the server's mark of both."""

    etag: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)


def judge(etag: str, given: Any, origins: Mapping[str, str]) -> Pushed:
    """Take what is safe and not set on the machine. ``origins``: by which way the machine's own settings came."""
    if not isinstance(given, dict) or len(json.dumps(given)) > limits.AGENT_SETTINGS_BYTES_MAX:
        return Pushed(etag, {}, {"*": "not a table of settings of a sensible size"})
    settings: dict[str, Any] = {}
    refused: dict[str, str] = {}
    for name, value in given.items():
        if name not in _SAFE:
            refused[name] = f"only {', '.join(sorted(_SAFE))} may be set from outside"
        elif (way := origins.get(name, "default")) not in ("default", "server"):
            refused[name] = f"set on the host ({way})"
        else:
            try:
                if name == "tags" and isinstance(value, dict) and "host" in value:
                    raise Refused("the tag host is the host's own")
                _SAFE[name].read(name, value)
                settings[name] = value
            except Refused as error:
                refused[name] = str(error)
    return Pushed(etag, settings, refused)


def load(folder: Path) -> Pushed:
    """What was applied last; nothing if that cannot be read."""
    try:
        found = json.loads((folder / _FILE).read_bytes())
        return Pushed(str(found["etag"]), dict(found["settings"]), dict(found["refused"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return Pushed()


def keep(folder: Path, pushed: Pushed) -> None:
    """Make it what ``load`` finds; a disk that refuses costs nothing but that."""
    text = json.dumps({"etag": pushed.etag, "settings": dict(pushed.settings), "refused": dict(pushed.refused)})
    half = folder / f"{_FILE}.new"
    with suppress(OSError):
        half.write_text(text)
        half.replace(folder / _FILE)
