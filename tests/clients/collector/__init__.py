"""The OpenTelemetry collector, from its own Go modules, pinned by the go.mod and go.sum of this folder.

The main.go here lists its components, as the collector's own builder would. The program is stored in the user's cache
folder under a hash of all its sources. Enter by ``build``.
"""

from pathlib import Path

from tests.clients.support import golang

HERE = Path(__file__).parent
GO = "1.26.0"  # as its go.mod wants


def build() -> Path:
    """The program, built if need be."""
    made_of = b"".join((HERE / name).read_bytes() for name in ("main.go", "go.mod", "go.sum"))
    return golang.cached_build("otelcol", made_of, lambda target: golang.build(HERE, target, ".", at_least=GO))
