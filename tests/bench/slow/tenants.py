"""What one tenant notices of trouble that another makes or has: times of its answers, and how late its rules are.

Each row of the matrix is a kind of trouble that lasts ``options.hold`` seconds. Before each one the other tenant is
measured alone, since a machine is not equally fast at all times. Enter by ``tenants``.
"""

import argparse
import json
import multiprocessing
import sqlite3
import subprocess
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from pathlib import Path

import numpy as np
import psutil

from spm.store import epochs, keys
from spm.store.backends import open_backend
from tests.bench import report
from tests.bench.slow.neighbours import ask
from tests.servers.product import ROOT, Served, start_product

_FORK = multiprocessing.get_context("fork")
_numbers = count(1)
_HOUR_MS, _SETTLE_S, _CLIENTS = 3_600_000, 3.0, 4
_BODY = "".join(f"calm,host=h{n} v={n}\n" for n in range(100)).encode()
_QUERY = "/prometheus/api/v1/query?query=sum(rate(calm_v[5m]))"
_SLOW = "max_over_time(sum(quantile_over_time(0.9, loud_v[10m]))[10m:1s])"
_PREPARE = """
from dataclasses import replace
from alerts import rulebook
from spm.accounts import tokens
from spm.accounts.models import App, Organisation
from spm.clock import SystemClock
now = SystemClock().now_ms()
draft = rulebook.Draft("busy", "calm_v", ">", 1e9, None, 0, 0, "warning", (), True)
for name in ("calm", "loud"):
    app = App.objects.create(organisation=Organisation.objects.create(name=name), name=name)
    scopes = ["read", "write", "ingest"]
    print("TENANT", name, app.pk, tokens.issue(app, name="t", scopes=scopes)[1])
    rulebook.write(app, draft, by=None, now_ms=now)
"""
_RULES = """
from dataclasses import replace
from alerts import rulebook
from spm.accounts.models import App
from spm.clock import SystemClock
now = SystemClock().now_ms()
draft = rulebook.Draft("", "", ">", -1.0, None, 0, 0, "warning", (), True)
app = App.objects.get(name="loud")
for n in range(300):
    expr = f"sum by (host) (quantile_over_time(0.{n % 9 + 1}, loud_v[30m]))"
    rulebook.write(app, replace(draft, name=f"loud {n}", expr=expr), by=None, now_ms=now)
"""


@dataclass(slots=True)
class Tenant:
    """One tenant of the server."""

    served: Served
    app: int
    token: str
    answers: Counter[int] = field(default_factory=Counter)

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def send(self, method: str, path: str, body: bytes | None = None, **headers: str) -> int:
        """One request over a connection of its own; its status, 0 if there was none."""
        link = self.served.connection()
        try:
            link.request(method, path, body, self.bearer | headers)
            answer = link.getresponse()
            answer.read()
            status = answer.status
        except OSError:
            status = 0
        finally:
            link.close()
        self.answers[status] += 1
        return status


def tenants(options: argparse.Namespace, folder: Path) -> None:
    """Measure the calm tenant alone and beside each kind of trouble of the loud one."""
    served = start_product(folder / "product")
    try:
        by_name = dict(_new_tenants(served))
        calm, loud = by_name["calm"], by_name["loud"]
        _fill(loud)
        _measured(calm, 5.0)
        for name, trouble in TROUBLES.items():
            if any(part in name for part in options.only.split(",")):
                _row(name, trouble, calm, loud, options.hold)
    finally:
        served.stop()


def _new_tenants(served: Served) -> Iterator[tuple[str, Tenant]]:
    for line in _shell(served, _PREPARE):
        if line.startswith("TENANT "):
            _, name, app, token = line.split()
            yield name, Tenant(served, int(app), token)


def _shell(served: Served, code: str) -> list[str]:
    command = [str(ROOT / "bin/manage"), "shell", "-v0", "-c", code]
    environment = {**psutil.Process().environ(), "SPM_DATA": str(served.data)}
    return subprocess.run(command, check=True, env=environment, capture_output=True, text=True).stdout.splitlines()


def _fill(loud: Tenant) -> None:
    """An hour of eighty hosts for the loud tenant's own queries and rules."""
    now_s = int(time.time()) // 10 * 10
    lines = (f"loud,host=h{n} v={at % 97 + n} {1000 * at}" for at in range(now_s - 3_600, now_s, 10) for n in range(80))
    loud.send("POST", "/write?precision=ms", "\n".join(lines).encode())


def _row(name: str, trouble: "Trouble", calm: Tenant, loud: Tenant, hold_s: float) -> None:
    alone = _measured(calm, hold_s)
    over, answers = _FORK.Event(), _FORK.Queue()
    making = _FORK.Process(target=_make_trouble, args=(trouble, loud, over, answers))
    making.start()
    time.sleep(_SETTLE_S)
    beside = _measured(calm, hold_s)
    over.set()
    statuses = answers.get()
    making.join()
    figures = {
        f"{kind}_{quantile}": f"{before:.3g}→{after:.3g} ({after / before:.2f})"
        for kind in alone
        for quantile, percent in (("p50", 50), ("p99", 99))
        for before, after in [(float(np.percentile(each[kind], percent)) for each in (alone, beside))]
    }
    report.line(name, **figures, loud=json.dumps(statuses))
    time.sleep(_SETTLE_S)


def _make_trouble(trouble: "Trouble", loud: Tenant, over: Event, answers: "Queue[dict[int, int]]") -> None:
    """Make trouble in a process of its own: in this one its threads would delay those that measure."""
    threads = [threading.Thread(target=trouble, args=(loud, over, n), daemon=True) for n in range(_CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    answers.put(dict(loud.answers))


def _measured(calm: Tenant, seconds: float) -> dict[str, list[float]]:
    """Of the calm tenant: ms of each push and query, and seconds that its rules are behind, looked at evenly."""
    took: dict[str, list[float]] = {"push_ms": [], "query_ms": [], "rules_s": []}
    pushing, asking = calm.served.connection(), calm.served.connection()
    acts: Mapping[str, tuple[float, Callable[[], object]]] = {
        "push_ms": (0.04, lambda: ask(pushing, "POST", "/write", calm.bearer, _BODY)),
        "query_ms": (0.1, lambda: ask(asking, "GET", _QUERY, calm.bearer)),
    }
    until = time.perf_counter() + seconds

    def work(kind: str, every_s: float, act: Callable[[], object]) -> None:
        due = time.perf_counter()
        while due < until:
            begun = time.perf_counter()
            act()
            took[kind].append(1e3 * (time.perf_counter() - begun))
            due = max(due + every_s, time.perf_counter())
            time.sleep(max(0.0, due - time.perf_counter()))

    def look() -> None:
        while time.perf_counter() < until:
            took["rules_s"].append(time.time() - _position_ms(calm) / 1e3)
            time.sleep(0.25)

    threads = [threading.Thread(target=work, args=(kind, *act)) for kind, act in acts.items()]
    threads.append(threading.Thread(target=look))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return took


def _position_ms(tenant: Tenant) -> int:
    [database] = tenant.served.data.glob("*.sqlite3")
    connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=10)
    try:
        row = connection.execute("select position_ms from alerts_lane where app_id = ?", [tenant.app]).fetchone()
    finally:
        connection.close()
    return int(row[0])


# --- kinds of trouble: each is done by so many threads, of which the number is given, until the event is set ----------

Trouble = Callable[[Tenant, Event, int], None]


def _new_series(loud: Tenant, over: Event, number: int) -> None:
    while not over.is_set():
        first = 1_000 * next(_numbers)
        body = "".join(f"churn,id=i{first + n} v=1\n" for n in range(1_000))
        loud.send("POST", "/write", body.encode())


def _many_sources(loud: Tenant, over: Event, number: int) -> None:
    while not over.is_set():
        loud.send("POST", "/write", b"loud,host=h1 v=1\n", **{"X-SPM-Source": f"source{next(_numbers)}"})


def _large_bodies(loud: Tenant, over: Event, number: int) -> None:
    body = "".join(f"large,host=h{n % 500} f{n // 500}={n}\n" for n in range(10_000)).encode()
    while not over.is_set():
        loud.send("POST", "/write", body)


def _wide_bodies(loud: Tenant, over: Event, number: int) -> None:
    while not over.is_set():
        start_ms = int(time.time() * 1_000) - next(_numbers) * 1_000
        body = "".join(f"wide,host=h{n % 16} v=1 {start_ms - n * _HOUR_MS}\n" for n in range(60, 2_060))
        loud.send("POST", "/write?precision=ms", body.encode())


def _late_samples(loud: Tenant, over: Event, number: int) -> None:
    while not over.is_set():
        at_ms = int(time.time() * 1_000) - (1 + next(_numbers) % 40) * _HOUR_MS
        loud.send("POST", "/write?precision=ms", f"loud,host=h1 v=1 {at_ms}\n".encode())


def _imports(loud: Tenant, over: Event, number: int) -> None:
    while not over.is_set():
        start_ms = int(time.time() * 1_000) - 400 * _HOUR_MS - next(_numbers)
        rows = (
            {"metric": {"__name__": "moved", "n": str(n)}, "values": [1.0] * 300, "timestamps": _every(start_ms)}
            for n in range(40)
        )
        body = "\n".join(map(json.dumps, rows)).encode()
        loud.send("POST", "/api/v1/import?format=jsonl", body)


def _every(start_ms: int) -> list[int]:
    return [start_ms + n * _HOUR_MS for n in range(300)]


def _huge_labels(loud: Tenant, over: Event, number: int) -> None:
    while not over.is_set():
        body = f"huge,id={next(_numbers)}{'x' * 30_000} v=1\n" * 20
        loud.send("POST", "/write", body.encode())


def _slow_queries(loud: Tenant, over: Event, number: int) -> None:
    while not over.is_set():
        now_s = int(time.time())
        parameters = {"query": _SLOW, "start": now_s - 900, "end": now_s, "step": 1, "timeout": "30s"}
        loud.send("GET", "/prometheus/api/v1/query_range?" + urllib.parse.urlencode(parameters))


def _expressions(loud: Tenant, over: Event, number: int) -> None:
    while not over.is_set():
        query = f'count({{__name__=~".+", host=~"(h+)+{next(_numbers)}x|.*a.*b.*c.*"}})'
        loud.send("GET", "/prometheus/api/v1/query?" + urllib.parse.urlencode({"query": query}))


def _names(loud: Tenant, over: Event, number: int) -> None:
    while not over.is_set():
        loud.send("GET", "/prometheus/api/v1/series?" + urllib.parse.urlencode({"match[]": '{__name__=~".+"}'}))


def _rules(loud: Tenant, over: Event, number: int) -> None:
    if number == 0:
        _shell(loud.served, _RULES)
    over.wait()


def _damaged_rows(loud: Tenant, over: Event, number: int) -> None:
    """Its placement row is damaged, so nothing of it can be written; it goes on sending."""
    if number == 0:
        store = open_backend(f"lmdb://{loud.served.data}/store")
        store.check_and_put("config", epochs.row_key(loud.app), epochs.COLUMN, None, b"damaged bytes")
        for day in range(int(time.time()) // 86_400 - 2, int(time.time()) // 86_400 + 1):
            key = keys.manifest(loud.app, day)
            [row] = store.get("manifest", [key])
            before = None if row is None else row.get(b"v")
            store.check_and_put("manifest", key, b"v", before, b"damaged bytes")
        store.close()
    while not over.is_set():
        loud.send("POST", "/write", b"loud,host=h1 v=1\n")
        time.sleep(0.02)


TROUBLES: Mapping[str, Trouble] = {
    "nothing": lambda loud, over, number: None,
    "new series": _new_series,
    "sources": _many_sources,
    "large bodies": _large_bodies,
    "wide bodies of long ago": _wide_bodies,
    "late samples": _late_samples,
    "imports": _imports,
    "huge labels": _huge_labels,
    "slow queries": _slow_queries,
    "regular expressions": _expressions,
    "names": _names,
    "rules": _rules,
    "damaged rows": _damaged_rows,
}
