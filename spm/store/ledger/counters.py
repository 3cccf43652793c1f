"""Draws numbers that are never given twice: one counter per name, in `config`, by check-and-put.

A number whose answer was lost is never given again. Process numbers, run numbers and retraction numbers are such.
"""

from collections.abc import Mapping

import msgspec

from spm.store.backends.base import Backend, Reader
from spm.store.check_and_put import COLUMN, replace_cell

_TRIES = 1000  # a check-and-put lost so often means a broken store, not company


def take(store: Backend, name: bytes, *, below: int) -> int:
    """Draw the next number (from 1) of the counter ``name``; raise ``StoreUnavailable`` when it is not sure."""

    def next_number(row: Mapping[bytes, bytes]) -> tuple[bytes, int]:
        last = row.get(COLUMN)
        number = (msgspec.msgpack.decode(last, type=int) if last else 0) + 1
        assert number < below, f"BUG: the numbers of {name.decode()} are used up"
        return msgspec.msgpack.encode(number), number

    error = f"no number of {name.decode()} after {_TRIES} tries"
    return replace_cell(store, "config", name, next_number, error=error, tries=_TRIES)


def last(reader: Reader, name: bytes) -> int:
    """Return the number that was drawn last; 0 if none was."""
    [row] = reader.get("config", [name], [COLUMN])
    return msgspec.msgpack.decode(row[COLUMN], type=int) if row else 0


def advance(store: Backend, name: bytes, count: int) -> int:
    """Give up the next ``count`` numbers of a counter, which somebody may have drawn elsewhere; the last one."""

    def later(row: Mapping[bytes, bytes]) -> tuple[bytes, int]:
        last = row.get(COLUMN)
        number = (msgspec.msgpack.decode(last, type=int) if last else 0) + count
        return msgspec.msgpack.encode(number), number

    error = f"the numbers of {name.decode()} did not advance in {_TRIES} tries"
    return replace_cell(store, "config", name, later, error=error, tries=_TRIES)
