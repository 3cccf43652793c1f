"""Keeps equal columns once: hour after hour, pages name the same series with the same counts.

That saves memory, and equal columns can be recognised by their address. A column is forgotten when nothing uses it any
more. Enter by ``intern``.
"""

import hashlib
import threading
import weakref
from typing import Any, TypeVar

import numpy as np

Column = TypeVar("Column", bound="np.ndarray[Any, Any]")
_LOCK = threading.Lock()
_COLUMNS: "weakref.WeakValueDictionary[tuple[str, bytes], np.ndarray[Any, Any]]" = weakref.WeakValueDictionary()


def intern(column: Column) -> Column:
    """The column, or an equal one that is interned already."""
    key = column.dtype.str, hashlib.blake2b(np.ascontiguousarray(column).data, digest_size=16).digest()
    with _LOCK:
        interned = _COLUMNS.get(key)
        if interned is not None and np.array_equal(interned, column):
            return interned  # type: ignore[return-value]
        _COLUMNS[key] = column
        return column
