"""Copies the database while it is written, and puts a copy back: SQLite by its backup interface, PostgreSQL by tools.

Both copies are the state of one moment. Enter by ``copy_database`` and ``put_back``.
"""

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from django.conf import settings
from django.db import connection, connections

from spm.backup.record import Watch
from spm.errors import Refused, SpmError

_SQLITE, _POSTGRES = "database.sqlite3", "database.dump"
_PAGES_AT_ONCE = 2_048  # of SQLite, 8 MB


class DumpFailed(SpmError):
    """A program of PostgreSQL failed; the text has what it said."""


def kind() -> str:
    """Return which database this is: sqlite or postgresql."""
    return str(connection.vendor)


def size_bytes() -> int:
    """Return about how large the copy is at most."""
    if kind() == "sqlite":
        return sum(path.stat().st_size for path in _sqlite_files() if path.exists())
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_database_size(current_database())")
        return int(cursor.fetchone()[0])


def copy_database(folder: Path, watch: Watch) -> None:
    """Write a copy of the database into a folder. Writers go on meanwhile."""
    if kind() != "sqlite":
        _run("pg_dump", ["--format=custom", f"--file={folder / _POSTGRES}"])
        return
    name = str(settings.DATABASES["default"]["NAME"])
    with closing(_open_readonly(name)) as source, closing(sqlite3.connect(folder / _SQLITE)) as copy:
        page_bytes = int(source.execute("PRAGMA page_size").fetchone()[0])
        source.execute("BEGIN")  # one moment: else a writer makes the copy begin anew
        source.execute("SELECT count(*) FROM sqlite_schema").fetchone()

        def tell(_: int, remaining: int, total: int) -> None:
            watch("copying the database", (total - remaining) * page_bytes, total * page_bytes)

        source.backup(copy, pages=_PAGES_AT_ONCE, progress=tell, sleep=0)
        copy.execute("PRAGMA journal_mode=DELETE")  # one file


def is_empty() -> bool:
    """Whether the database of the settings has no table yet."""
    if kind() == "sqlite" and not Path(settings.DATABASES["default"]["NAME"]).exists():
        return True
    return not connection.introspection.table_names()


def put_back(folder: Path, aside: Path | None) -> None:
    """Replace the database by the copy in a folder; a former one of SQLite is moved to the folder ``aside``."""
    connections.close_all()
    if kind() != "sqlite":
        clean = ["--clean", "--if-exists"] if aside is not None else []
        options = ["--no-owner", "--exit-on-error", "--single-transaction", *clean]
        _run("pg_restore", [*options, f"--dbname={settings.DATABASES['default']['NAME']}", str(folder / _POSTGRES)])
        return
    for path in _sqlite_files():
        if aside is not None and path.exists():
            shutil.move(path, aside / path.name)
    name = Path(settings.DATABASES["default"]["NAME"])
    name.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(folder / _SQLITE, name)
    name.chmod(0o600)


def file_of(database: str) -> str:
    """Return the name of the file that holds the copy of a database of this kind."""
    return _SQLITE if database == "sqlite" else _POSTGRES


def _sqlite_files() -> Sequence[Path]:
    name = str(settings.DATABASES["default"]["NAME"])
    return [Path(name + end) for end in ("", "-wal", "-shm")]


def _open_readonly(name: str) -> sqlite3.Connection:
    return sqlite3.connect(f"{Path(name).absolute().as_uri()}?mode=ro", uri=True, timeout=20, isolation_level=None)


def _run(program: str, arguments: Sequence[str]) -> None:
    """Run a program of PostgreSQL on the database of the settings. Its password is not on the command line."""
    if shutil.which(program) is None:
        remedy = "Install PostgreSQL's client programs, of at least the server's version (Debian: postgresql-client)."
        raise Refused(f"the program {program} is missing", remedy=remedy)
    database = settings.DATABASES["default"]
    named = {"PGHOST": "HOST", "PGPORT": "PORT", "PGUSER": "USER", "PGPASSWORD": "PASSWORD", "PGDATABASE": "NAME"}
    parameters = {f"PG{name.upper()}": str(value) for name, value in database.get("OPTIONS", {}).items()}
    own = {name: str(database[key]) for name, key in named.items() if database.get(key)}
    environment = {**os.environ, **parameters, **own}
    done = subprocess.run([program, *arguments], env=environment, capture_output=True, text=True)
    if done.returncode:
        raise DumpFailed(f"{program} failed: {done.stderr.strip()[-2_000:]}")
