"""Prometheus 3, unmodified: built from its Go module, pinned by the go.mod and go.sum of this folder.

Its own build tag leaves the discovery of targets in clouds out, which takes most of the time to build; its pages are
no part of the module. The program is stored in the user's cache folder under a hash of all its sources, so that it is
built once per machine. Debian's Prometheus is 2.42.
"""

from pathlib import Path

from tests.clients.support import golang

HERE = Path(__file__).parent
PACKAGE = "github.com/prometheus/prometheus/cmd/prometheus"
TAGS = ("remove_all_sd",)
GO = "1.26.7"  # as its go.mod wants


def binary() -> Path:
    """Returns the path of the program, which it builds if necessary; without Go the test is skipped."""
    made_of = b"".join((HERE / name).read_bytes() for name in ("go.mod", "go.sum")) + " ".join(TAGS).encode()
    return golang.cached_build("prometheus3", made_of, _build)


def _build(target: Path) -> None:
    golang.build(HERE, target, PACKAGE, tags=TAGS, at_least=GO)
