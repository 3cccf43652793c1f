"""Keeps a life between two of its days, so that another session can go on: database, store, and what comes next.

All processes of the life have ended then, and begin anew after it, in this session or another. Only SQLite can be kept.
Enter by ``save`` and ``load``.
"""

import pickle
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path

from django.db import connection

from spm.store import keys
from spm.store.backends.base import Row
from spm.store.backends.memory import MemoryBackend
from tests.alerts.knowledge_world import Installation
from tests.alerts.replay.history import Living

_END = b"\xff" * 64  # above all keys


@dataclass(frozen=True)
class Checkpoint:
    """A life with its edit and its store, and how many seconds it took; its database lies beside it."""

    living: Living
    edit: Callable[[int], None]
    lived_s: float
    app: int
    now_ms: int
    accepted: int
    rows: Mapping[str, list[Row]]

    @property
    def database(self) -> str:
        return f"database-{self.now_ms}"


def save(folder: Path, living: Living, edit: Callable[[int], None], lived_s: float) -> None:
    """Keep a life whose processes have ended. A session that is killed meanwhile leaves the checkpoint before it."""
    installation, draft = living.installation, folder / "draft"
    rows = {table: list(installation.store.scan(table, b"", _END)) for table in keys.TABLES}
    place = (installation.app, installation.clock.now_ms(), installation.accepted)
    checkpoint = Checkpoint(living, edit, lived_s, *place, rows)
    with _opened(folder / checkpoint.database) as copy:
        connection.connection.backup(copy)
    draft.write_bytes(pickle.dumps(checkpoint))
    draft.rename(folder / "checkpoint")
    for older in set(folder.glob("database-*")) - {folder / checkpoint.database}:
        older.unlink()


def load(folder: Path, installation: Installation) -> Checkpoint | None:
    """Put an installation, its store and the database where they were, if a life was kept."""
    file = folder / "checkpoint"
    if not file.exists():
        return None
    checkpoint: Checkpoint = pickle.loads(file.read_bytes())  # noqa: S301  # of our own cache
    with _opened(folder / checkpoint.database) as copy:
        copy.backup(connection.connection)
    installation.app, installation.accepted = checkpoint.app, checkpoint.accepted
    installation.clock.advance(checkpoint.now_ms - installation.clock.now_ms())
    installation.store = MemoryBackend()
    installation.store.put([*checkpoint.rows.items()])
    installation.start()
    checkpoint.living.installation = installation
    return checkpoint


def _opened(file: Path) -> AbstractContextManager[sqlite3.Connection]:
    connection.ensure_connection()
    return closing(sqlite3.connect(file))
