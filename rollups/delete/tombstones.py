"""Remembers which apps were deleted, since a message of them may still come out of a queue, weeks later.

A writer asks no database whether an app exists. So its number gets a tombstone before its record goes, and the daily
round deletes what has come in since, until the tombstone is ``TOMBSTONE_KEPT_MS`` old: no queue holds a message longer.
``unlisted_apps`` finds apps that have rows and neither a record nor a tombstone: of another database, as after a
restore of an older one. Enter by ``put`` and ``read``.
"""

from collections.abc import Collection, Iterator

import msgspec

from spm.store import keys
from spm.store.backends.base import Backend, Reader
from spm.store.check_and_put import COLUMN

_PREFIX, _AFTER = b"erased/", b"erased0"  # all keys between them begin with the prefix
_TABLES = ("pending", "log", "inputs")  # an app that has any samples, or their hours or days, has rows in one of them


def put(store: Backend, app: int, now_ms: int) -> None:
    """Put the tombstone of an app that is about to lose its record. Putting it twice is harmless."""
    store.put([("config", [(_key(app), {COLUMN: msgspec.msgpack.encode(now_ms)})])])


def drop(store: Backend, app: int) -> None:
    """Remove a tombstone after which nothing can come any more."""
    store.delete("config", [(_key(app), None)])


def read(reader: Reader) -> dict[int, int]:
    """The deleted apps, each with the time of its tombstone in ms."""
    rows = reader.scan("config", _PREFIX, _AFTER, columns=[COLUMN])
    return {int(key[len(_PREFIX) :]): msgspec.msgpack.decode(cells[COLUMN], type=int) for key, cells in rows}


def unlisted_apps(reader: Reader, listed: Collection[int]) -> list[int]:
    """The numbers of apps that have rows in the store and are not listed, nor deleted."""
    known = {*listed, *read(reader)}
    return sorted({app for table in _TABLES for shard in range(256) for app in _apps(reader, table, shard)} - known)


def _apps(reader: Reader, table: str, shard: int) -> Iterator[int]:
    """The numbers of a shard, each by one look: the scan begins again behind the app that it has found."""
    start, stop = keys.app_range(shard, 0)[0], keys.app_range(shard, keys.U32)[1]
    while first := next(iter(reader.scan(table, start, stop, keys_only=True, limit=1)), None):
        app = keys.app_of(table, first[0])
        yield app
        if app == keys.U32:
            return
        start = keys.app_range(shard, app + 1)[0]


def _key(app: int) -> bytes:
    return _PREFIX + b"%d" % app
