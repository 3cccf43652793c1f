"""Notes of real processes: all of them when a process ends, all but about the last second when it is killed."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from django.db import connection

from spm.accounts.models import App, Organisation
from tests.servers.processes import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

PROGRAM = """
import atexit, os, sys, time
import django
django.setup()
import numpy as np
from ingest.accept.activity import record_accepted
from ingest.accept.identity import Sender
from spm.accounts.note_writer import process_writer
from spm.clock import SystemClock
from spm.wire import Parsed, Rejection, SeriesTable, canonical
table, one = SeriesTable.from_canonical([canonical("m", {})]), np.zeros(1, np.int64)
def note(name):
    lines = (Rejection(1, name, ""),)
    parsed = Parsed(table, one.astype(np.int32), one, one.astype(float), 0, lines, 1)
    record_accepted(parsed, Sender(int(sys.argv[1]), name, "json"), SystemClock().now_ms())
"""
ENDS = """
for number in range(10):
    note(f"host-{number}")
atexit.register(note, "at the end")  # as an acceptor that settles its last messages
"""
RUNS = """
for number in range(100_000):
    note(f"host-{number}")
    print(number, flush=True)
    time.sleep(0.01)
"""
FORKS = """
note("first")
while len(process_writer._queues[0][0]):
    time.sleep(0.01)
note("waits")
child = os.fork()
if child:
    os.waitpid(child, 0)
else:
    note("of the child")
"""
Start = Callable[[str], subprocess.Popen[str]]
Select = Callable[[str], list[str]]
SOURCES = "SELECT name FROM accounts_source ORDER BY id"
REASONS = "SELECT reason FROM ingest_rejectedline ORDER BY id"


@pytest.fixture
def start(tmp_path: Path, db: None) -> Start:
    """Starts a program on a copy of the database, which holds one app."""
    if connection.vendor != "sqlite":
        pytest.skip("programs of this test have a database in a file")
    app = App.objects.create(organisation=Organisation.objects.create(name="Acme"), name="Shop")
    with sqlite3.connect(tmp_path / "copy.sqlite3") as copy:
        connection.connection.backup(copy)
    env = os.environ | {
        "DATABASE_URL": f"sqlite:///{tmp_path}/copy.sqlite3",
        "DJANGO_SETTINGS_MODULE": "tests.settings",
    }

    def run(program: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", PROGRAM + program, str(app.pk)]
        return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return run


@pytest.fixture
def select(tmp_path: Path) -> Select:
    """Asks the programs' database."""

    def ask(statement: str) -> list[str]:
        with sqlite3.connect(tmp_path / "copy.sqlite3", timeout=20) as database:
            return [str(row[0]) for row in database.execute(statement)]

    return ask


def test_a_process_that_ends_writes_its_last_notes(start: Start, select: Select) -> None:
    _, errors = start(ENDS).communicate(timeout=60)
    assert errors == ""
    assert sorted(select(SOURCES)) == ["at the end", *(f"host-{number}" for number in range(10))]


@pytest.mark.timed
def test_a_process_that_is_killed_loses_only_the_notes_of_its_last_moments(start: Start, select: Select) -> None:
    process = start(RUNS)
    assert process.stdout is not None
    assert wait_until(lambda: len(select(SOURCES)) >= 100, seconds=60)
    process.kill()
    noted = 1 + int(process.stdout.read().split()[-1])
    process.wait()
    names = select(SOURCES)
    assert select("PRAGMA integrity_check") == ["ok"]
    assert sorted(names) == sorted(f"host-{number}" for number in range(len(names)))
    assert noted - len(names) <= 300, "more than three seconds of notes"


def test_a_process_that_was_forked_writes_its_own_notes_and_none_of_its_parents(start: Start, select: Select) -> None:
    _, errors = start(FORKS).communicate(timeout=60)
    assert errors == ""
    assert sorted(select(SOURCES)) == sorted(select(REASONS)) == ["first", "of the child", "waits"]
