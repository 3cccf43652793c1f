"""The stamp floor: the time below which no process of a site stamps any more, although its clock is earlier.

A clock that was ahead for a moment leaves stamps that would win over every later correction until all clocks have
passed them, and that a retraction "up to now" would not cover. So a process whose stamps lie more than
``STAMP_AHEAD_MS`` above its clock says so here, and every process stamps above it from then on: the later acceptance
wins again. One cell of `config`, which only ever grows; absent while no clock was ahead. Enter by ``read``, ``lift``.
"""

from collections.abc import Mapping

import msgspec

from spm import limits
from spm.store.backends.base import Backend, Reader
from spm.store.check_and_put import COLUMN, replace_cell
from spm.store.ledger import rounds

_KEY = b"stamp_floor"
_UNANNOUNCED_MS = round(5 * limits.ANNOUNCE_S * 1000)  # what a process may have stamped since its last round


def read(reader: Reader) -> int:
    """The floor in ms; 0 where there is none."""
    [row] = reader.get("config", [_KEY], [COLUMN])
    return _decoded(row or {})


def lift(store: Backend, floor_ms: int) -> None:
    """Put the floor at ``floor_ms`` unless it is higher already. Raises ``StoreUnavailable``."""

    def higher(row: Mapping[bytes, bytes]) -> tuple[bytes | None, None]:
        return (msgspec.msgpack.encode(floor_ms), None) if floor_ms > _decoded(row) else (None, None)

    replace_cell(store, "config", _KEY, higher, error="the stamp floor kept changing")


def of_new_process(reader: Reader, now_ms: int) -> int:
    """The floor for a process that begins: that of the site, or a clock in a round that was ahead of its own clock.

    A process that was killed while its clock was ahead could not say so any more.
    """
    clocks = [each.at_ms for each in rounds.read(reader).values() if each.at_ms > now_ms + limits.STAMP_AHEAD_MS]
    return max([read(reader), *(at_ms + _UNANNOUNCED_MS for at_ms in clocks)])


def _decoded(row: Mapping[bytes, bytes]) -> int:
    return msgspec.msgpack.decode(row[COLUMN], type=int) if COLUMN in row else 0
