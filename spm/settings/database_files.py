"""Keeps the files beside SQLite's database in place for as long as a process lives.

Django opens a connection for each request. The last one that closes deletes the write-ahead log and its index, and the
next one makes them anew, which a full disk forbids: then nothing could be read either. So each process has one that
stays open, and does nothing. Enter by ``hold_database_files``.
"""

import sqlite3
from functools import lru_cache

from django.conf import settings


@lru_cache(maxsize=1)
def hold_database_files() -> sqlite3.Connection | None:
    """Open the connection that stays; None for a database that has a server."""
    database = settings.DATABASES["default"]
    return held_open(str(database["NAME"])) if database["ENGINE"].endswith("sqlite3") else None


def held_open(path: str) -> sqlite3.Connection:
    """Return a connection that has the log of the database open: opening alone touches no file."""
    connection = sqlite3.connect(path, timeout=20, check_same_thread=False, isolation_level=None, uri=True)
    connection.execute("PRAGMA journal_mode=WAL").fetchall()
    connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
    return connection
