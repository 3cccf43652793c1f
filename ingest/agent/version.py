"""The version of the agent: that of the source tree it runs from, else that of the installed package."""

import re
from importlib import metadata
from pathlib import Path

_HEADING = re.compile(r"^## (\d+\.\d+\.\d+)", re.MULTILINE)


def _version() -> str:
    """Reads the version of the tree first: a package of an older version may be installed as well."""
    changes = Path(__file__).resolve().parents[2] / "CHANGELOG.md"
    try:
        heading = _HEADING.search(changes.read_text())
        return heading[1] if heading else metadata.version("spm")
    except OSError:
        pass
    try:
        return metadata.version("spm")
    except metadata.PackageNotFoundError:
        return "unknown"


VERSION = _version()
USER_AGENT = f"spm-agent/{VERSION}"
