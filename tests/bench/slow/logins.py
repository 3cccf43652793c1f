"""What a flood of wrong logins costs everybody else, and what becomes of the account that it is aimed at.

The guesses are of two kinds in turn: all of one account from one address, and each of another name from another
address, which no throttle of an account or a network stops: only the bound on hashes does. Addresses are those of the
loopback network. Enter by ``logins``.
"""

import argparse
import http.client
import subprocess
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.bench import report
from tests.bench.slow.neighbours import measured, print_line, print_ratio, target_of
from tests.servers.product import ROOT, Served, start_product

PER_S = 40
_WARM_S, _AT_ONCE = 3, 256
_OWN, _STRANGE, _ELSEWHERE = "127.0.0.1", "127.9.9.9", "127.7.7.7"
_CSRF = "a" * 32
_AUDIT = """
from collections import Counter
from spm.accounts.models import AuditEntry
for each in AuditEntry.objects.filter(action__startswith="login ").order_by("pk"):
    print("ENTRY", each.action, each.subject, each.detail["count"], sep="|")
"""


def logins(options: argparse.Namespace, folder: Path) -> None:
    """Measure without guesses, then beside ``PER_S`` of each kind in a second for ``options.hold`` seconds."""
    served = start_product(folder / "product")
    try:
        _measure(served, options.hold)
    finally:
        served.stop()


def _measure(served: Served, hold_s: float) -> None:
    target = target_of(served)
    session = log_in(served, _OWN, served.login, served.password)[1]
    pages = {path: {"Cookie": f"sessionid={session}"} for path in (f"/apps/{served.app}/", "/account/password")}
    measured(target, _WARM_S, pages)
    before, memory = measured(target, hold_s, pages), target.memory_bytes()
    print_line("without wrong logins", before, memory)
    for name, is_spray in (("one account, one address", False), ("any names, any addresses", True)):
        with _guesses(served, is_spray) as (statuses, memories):
            during = measured(target, hold_s, pages)
        print_line(name, during, max(memories))
        print_ratio(before, during, max(memories) - memory)
        report.line("answers to the guesses", **{str(status): number for status, number in sorted(statuses.items())})
    status, _ = log_in(served, _STRANGE, served.login, served.password)
    report.line("the right password from the guesser's address", status=status)
    status, _ = log_in(served, _ELSEWHERE, served.login, served.password)
    report.line("the right password from elsewhere", status=status)
    for entry in _audit_entries(served):
        print(entry, flush=True)


@contextmanager
def _guesses(served: Served, is_spray: bool) -> Iterator[tuple[Counter[int], list[int]]]:
    """Guess until the end of the block; yields the answers by status, and the server's memory from time to time."""
    statuses: Counter[int] = Counter()
    memories: list[int] = []
    over, target = threading.Event(), target_of(served)

    def guess(number: int) -> None:
        address = f"127.{10 + number // 62_500}.{number // 250 % 250}.{1 + number % 250}" if is_spray else _STRANGE
        login = f"person-{number}@example.org" if is_spray else served.login
        statuses[log_in(served, address, login, f"wrong {number}")[0]] += 1

    def keep_guessing() -> None:
        begun, number = time.perf_counter(), 0
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            while not over.wait(max(0.0, begun + number / PER_S - time.perf_counter())):
                pool.submit(guess, number)
                number += 1
                if number % PER_S == 0:
                    memories.append(target.memory_bytes())

    guessing = threading.Thread(target=keep_guessing)
    guessing.start()
    try:
        yield statuses, memories
    finally:
        over.set()
        guessing.join()


def log_in(served: Served, address: str, login: str, password: str) -> tuple[int, str]:
    """Post the form of the login page from an address; returns the status, and the session of a right login."""
    link = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60, source_address=(address, 0))
    form = {"csrfmiddlewaretoken": _CSRF, "username": login, "password": password}
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Cookie": f"csrftoken={_CSRF}"}
    try:
        link.request("POST", "/login", urllib.parse.urlencode(form), headers)
        answer = link.getresponse()
        answer.read()
        cookies = answer.headers.get_all("Set-Cookie") or []
    finally:
        link.close()
    return answer.status, next((each[10:].partition(";")[0] for each in cookies if each.startswith("sessionid=")), "")


def _audit_entries(served: Served) -> list[str]:
    command = [str(ROOT / "bin/manage"), "shell", "-v0", "-c", _AUDIT]
    environment = {**psutil.Process().environ(), "SPM_DATA": str(served.data)}
    done = subprocess.run(command, check=True, env=environment, capture_output=True, text=True)
    return [line for line in done.stdout.splitlines() if line.startswith("ENTRY")]
