"""Rounds of announcements: how far each accepting process has come in saying what it accepted (PROTOCOL 26).

A process puts a round before it stamps its first message and after each time that it announced. Who has read a round
number at a time knows: what the process accepted before that time is announced once its number is two higher, since
that round began later. One cell per process, ``h`` of app 0 in ``marks``. Enter by ``put`` and ``read``.
"""

from collections.abc import Mapping

import msgspec

from spm.errors import CorruptBlock
from spm.store import keys
from spm.store.backends.base import Backend, Reader
from spm.store.check_and_put import replace_cell
from spm.store.encoding import blocks

_COLUMN = b"h"


class Round(msgspec.Struct, frozen=True, array_like=True):
    """The newest round of a process. ``unannounced``: apps whose count it could not write in that round.

    ``at_ms`` is the time of its clock. ``ended``: no stamp of this process will follow.
    """

    process: int
    number: int
    at_ms: int
    unannounced: tuple[int, ...] = ()
    ended: bool = False


def put(store: Backend, present: Round) -> None:
    """Write a round, unless a newer one is there. Raises ``StoreUnavailable``."""

    def newer(row: Mapping[bytes, bytes]) -> tuple[bytes | None, None]:
        before = _decode(row[_COLUMN]) if _COLUMN in row else None
        if before is not None and (before.number, before.ended) >= (present.number, present.ended):
            return None, None
        return blocks.encode_record(blocks.ROUND, present), None

    error = f"the round of process {present.process} kept changing"
    replace_cell(store, "marks", keys.watermark(0, present.process), newer, error=error, column=_COLUMN)


def read(reader: Reader) -> dict[int, Round]:
    """Return the newest round of every process; one that cannot be read counts as absent."""
    [span] = keys.app_ranges("marks", 0)
    rows = (_decode(cells[_COLUMN]) for _, cells in reader.scan("marks", *span, columns=[_COLUMN]))
    return {each.process: each for each in rows if each is not None}


def _decode(raw: bytes) -> Round | None:
    try:
        return blocks.decode_record(blocks.ROUND, raw, Round)
    except CorruptBlock:
        return None
