"""Which version of the agent this is: that of the installed package, else of the tree it is started from."""

import re
from importlib import metadata
from pathlib import Path

_HEADING = re.compile(r"^## (\d+\.\d+\.\d+)", re.MULTILINE)


def _version() -> str:
    """The tree's own first: a package of an older version may be installed beside it."""
    changes = Path(__file__).resolve().parents[2] / "CHANGELOG.md"
    try:
        found = _HEADING.search(changes.read_text())
        return found[1] if found else metadata.version("spm")
    except OSError:
        pass
    try:
        return metadata.version("spm")
    except metadata.PackageNotFoundError:
        return "unknown"


VERSION = _version()
USER_AGENT = f"spm-agent/{VERSION}"
