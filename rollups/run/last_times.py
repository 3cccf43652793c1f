"""When something was last begun or done at a site, on whichever machine: cells of `config` with a time in ms.

Of several machines that begin at one moment, one does it: ``claim`` changes the cell from the time that was read.
"""

from collections.abc import Mapping

import msgspec

from spm.store.backends.base import Backend
from spm.store.check_and_put import COLUMN, replace_cell

RUN_STARTED = b"run/started"  # the last start of a run on Spark; one that dies early leaves no row
MAINTAINED = b"run/maintained"  # the end of the last daily maintenance


def read(store: Backend, name: bytes) -> int | None:
    """The time; ``None`` if there is none."""
    [row] = store.get("config", [name], [COLUMN])
    return _decoded(row or {})


def write(store: Backend, name: bytes, now_ms: int) -> None:
    """Put this time, whatever was there."""
    replace_cell(store, "config", name, lambda _: (msgspec.msgpack.encode(now_ms), None), error="a time kept changing")


def claim(store: Backend, name: bytes, before: int | None, now_ms: int) -> bool:
    """Put this time if it was ``before`` until now; return whether it is in."""

    def later(row: Mapping[bytes, bytes]) -> tuple[bytes | None, bool]:
        return (msgspec.msgpack.encode(now_ms), True) if _decoded(row) == before else (None, False)

    return replace_cell(store, "config", name, later, error="a time kept changing")


def _decoded(row: Mapping[bytes, bytes]) -> int | None:
    """The time in a row; that of a damaged one is unknown, and what it says is done once more."""
    try:
        return msgspec.msgpack.decode(row[COLUMN], type=int) if COLUMN in row else None
    except msgspec.MsgspecError:
        return None
