"""The OpenTelemetry collector, from its own Go modules, pinned by the go.mod and go.sum of this folder.

The main.go here names its parts, as the collector's own builder would. ``python -m tests.clients.collector`` builds it
into the user's cache folder, under a number of everything it is made of. Enter by ``build``.
"""

import hashlib
import os
from pathlib import Path

from tests.clients import golang

HERE = Path(__file__).parent
GO = "1.26.0"  # as its go.mod wants


def build() -> Path:
    """The program, built if need be."""
    made = _place()
    if not made.exists():
        made.parent.mkdir(parents=True, exist_ok=True)
        draft = made.with_name(f"draft-{os.getpid()}")
        golang.build(HERE, draft, ".", at_least=GO)
        draft.rename(made)
    return made


def _place() -> Path:
    """Where this very build is kept."""
    made_of = b"".join((HERE / name).read_bytes() for name in ("main.go", "go.mod", "go.sum"))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "spm-clients" / hashlib.sha256(made_of).hexdigest()[:16] / "otelcol"
