"""Numbers that nobody gets twice: one counter a name, in `config`, drawn by check-and-put.

A number whose answer was lost is gone, never given again: that is the point. Process numbers and run numbers are such.
"""

import msgspec

from spm.errors import StoreUnavailable
from spm.store.backends.base import Backend

_COLUMN = b"v"
_TRIES = 1000  # a check-and-put lost so often means a broken store, not company


def take(store: Backend, name: bytes, *, below: int) -> int:
    """The next number (from 1) of the counter ``name``; raises ``StoreUnavailable`` when it is not sure."""
    for _ in range(_TRIES):
        [row] = store.get("config", [name], [_COLUMN])
        was = row[_COLUMN] if row else None
        number = (msgspec.msgpack.decode(was, type=int) if was else 0) + 1
        assert number < below, f"BUG: the numbers of {name.decode()} are used up"
        if store.check_and_put("config", name, _COLUMN, was, msgspec.msgpack.encode(number)):
            return number
    raise StoreUnavailable(f"no number of {name.decode()} after {_TRIES} tries")
