"""influx_inspect of InfluxDB 1.8, unmodified: built from its Go module, pinned by the go.mod and go.sum of this folder.

No package of Debian has it. The program is stored in the user's cache folder under a hash of all its sources, so that
it is built once per machine, in twenty seconds of CPU.
"""

from pathlib import Path

from tests.clients.support import golang

HERE = Path(__file__).parent
PACKAGE = "github.com/influxdata/influxdb/cmd/influx_inspect"


def binary() -> Path:
    """Returns the path of the program, which it builds if necessary; without Go the test is skipped."""
    made_of = b"".join((HERE / name).read_bytes() for name in ("go.mod", "go.sum"))
    return golang.cached_build("influx_inspect", made_of, lambda target: golang.build(HERE, target, PACKAGE))
