"""Processes that check passwords at the same moment share one budget, on the real database."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from spm.accounts.logins import limits

pytestmark = pytest.mark.django_db
PROCESSES, TRIES = 3, 40
ROOT = Path(__file__).resolve().parents[4]
GUESSER = """
import json, sys
from concurrent.futures import ThreadPoolExecutor
import django
django.setup()
from django.db import connection
from django.test import RequestFactory
from spm.accounts.logins import attempts
from spm.accounts.logins.budgets import LoginThrottled
from spm.errors import LoginRefused

def guess(number):
    request = RequestFactory().post("/login", REMOTE_ADDR=sys.argv[1].replace("N", str(number)))
    while True:
        try:
            return "wrong" if attempts.log_in(request, sys.argv[3], "wrong") is None else "right"
        except LoginThrottled:
            return "refused"
        except LoginRefused:  # others of this process wait for their hashes, so this one is not counted
            continue
        finally:
            connection.close()

with ThreadPoolExecutor(4) as pool:
    sys.stdin.readline()
    print(json.dumps(list(pool.map(guess, range(int(sys.argv[2]))))))
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Settings of a migrated database of this test's own: SQLite in a file, or the PostgreSQL of the run."""
    url = os.environ.get("DATABASE_URL", "")
    url = url if url.startswith("postgres") else f"sqlite:///{tmp_path}/races.sqlite3"
    environ = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings", "DATABASE_URL": url}
    subprocess.run([sys.executable, "manage.py", "migrate", "-v0", "accounts"], cwd=ROOT, env=environ, check=True)
    return environ


def results(environ: dict[str, str], addresses: str, login: str) -> list[str]:
    """What became of the guesses of several processes, each from ``addresses`` with its own number for ``N``."""
    command = [sys.executable, "-c", GUESSER, addresses, str(TRIES), login]
    pipe = subprocess.PIPE
    guessers = [
        subprocess.Popen(command, cwd=ROOT, env=environ, text=True, stdin=pipe, stdout=pipe) for _ in range(PROCESSES)
    ]
    for guesser in guessers:
        assert guesser.stdin is not None
        guesser.stdin.write("go\n")
        guesser.stdin.flush()
    answers = [guesser.communicate(timeout=120)[0] for guesser in guessers]
    return [result for answer in answers for result in json.loads(answer)]


@pytest.mark.parametrize(
    ("addresses", "free"),
    [("192.0.2.1", limits.LOGIN_PAIR_FREE), ("198.51.100.N", limits.LOGIN_ACCOUNT_FREE)],
    ids=["from one network", "from a network for each try"],
)
def test_processes_that_guess_at_once_share_one_budget(environ: dict[str, str], addresses: str, free: int) -> None:
    guesses = results(environ, addresses, login=f"nobody at {addresses}")
    assert len(guesses) == PROCESSES * TRIES
    assert free <= guesses.count("wrong") <= free + 2  # a pause of two seconds may end meanwhile
    assert guesses.count("right") == 0
