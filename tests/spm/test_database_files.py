"""A process keeps the files that SQLite needs for reading, so that a full disk does not end it."""

import sqlite3
from pathlib import Path

from spm.settings.database_files import held_open


def use(path: Path, statement: str) -> list[tuple[object, ...]]:
    """What a request does: it opens a connection, and closes it."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        return connection.execute(statement).fetchall()
    finally:
        connection.close()


def beside(path: Path) -> set[str]:
    return {each.name for each in path.parent.iterdir()} - {path.name}


def test_the_log_and_its_index_stay_while_a_process_lives(tmp_path: Path) -> None:
    path = tmp_path / "spm.sqlite3"
    use(path, "CREATE TABLE t (n)")
    assert beside(path) == set(), "without it, the last connection takes them away"
    connection = held_open(str(path))
    for statement in ("INSERT INTO t VALUES (1)", "SELECT * FROM t"):
        use(path, statement)
        assert beside(path) == {"spm.sqlite3-wal", "spm.sqlite3-shm"}
    assert use(path, "SELECT n FROM t") == [(1,)]
    connection.close()
