"""Many queries at once: of one organisation and of ten, and what slow ones of two leave to a third.

The data of every answer is compared with that of the same query alone. Enter by ``parallel``.
"""

import argparse
import http.client
import json
import subprocess
import threading
import time
import urllib.parse
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import psutil

from tests.bench import report
from tests.servers.product import ROOT, Served, start_product

ORGANISATIONS, NUMBERS = 10, (20, 100, 250, 500)
_HOSTS, _SPAN_S, _EVERY_S = 80, 1_800, 10
_LIGHT = "avg by (host) (rate(par_v[1m]))"
_SLOW = "max_over_time(sum(quantile_over_time(0.9, par_v[10m]))[10m:1s])"
_SLOW_EACH = 4  # of an organisation: as many as run at once
_TOKENS = """
from spm.accounts import tokens
from spm.accounts.models import App, Organisation
for n in range({count}):
    app = App.objects.create(organisation=Organisation.objects.create(name=f"parallel {{n}}"), name="a")
    print("TOKEN", tokens.issue(app, name="t", scopes=["read", "ingest"])[1])
"""


def parallel(options: argparse.Namespace, folder: Path) -> None:
    """Ask in parallel, then beside slow queries for ``options.hold`` seconds."""
    served = start_product(folder / "product")
    try:
        secrets, now_s = _tokens(served), int(time.time()) // _EVERY_S * _EVERY_S
        for secret in secrets:
            _push(served, secret, now_s)
        time.sleep(2)
        query = _light(now_s)
        right = {secret: _ask(served, secret, query)[1] for secret in secrets}
        for secret in secrets:
            _ask(served, secret, query)
        for number in NUMBERS:
            for name, some in (("one organisation", secrets[:1]), (f"{len(secrets)} organisations", secrets)):
                _ask_at_once(served, [some[n % len(some)] for n in range(number)], query, right, name)
        _beside_slow(served, secrets[:3], query, now_s, options.hold)
    finally:
        served.stop()


def _ask_at_once(served: Served, secrets: Sequence[str], query: str, right: dict[str, bytes], name: str) -> None:
    """Send all queries at once, each over a connection of its own that is open already."""
    statuses: Counter[str] = Counter()
    took: list[float] = []
    gate = threading.Barrier(len(secrets))

    def work(secret: str) -> None:
        link = served.connection()
        link.connect()
        gate.wait(60)
        begun = time.perf_counter()
        status, body = _ask(served, secret, query, link)
        took.append(time.perf_counter() - begun)
        statuses[str(status) if status != 200 or _data(body) == _data(right[secret]) else "200 but wrong"] += 1
        link.close()

    _in_threads([lambda secret=secret: work(secret) for secret in secrets])  # type: ignore[misc]
    report.line(f"{len(secrets)} queries at once of {name}", **statuses, **report.quantiles(took), last_s=max(took))


def _data(answer: bytes) -> bytes:
    """Return an answer without its infos, of which one says how new its data is."""
    return answer.partition(b',"infos":')[0]


def _beside_slow(served: Served, secrets: Sequence[str], query: str, now_s: int, hold_s: float) -> None:
    """Measure pings and the third organisation's queries alone, and beside endless slow ones of the first two."""
    alone = _measured(served, secrets[2], query, hold_s / 2)
    over, done = threading.Event(), Counter[int]()
    parameters = {"query": _SLOW, "start": now_s - 900, "end": now_s, "step": 1, "timeout": "30s"}
    slow = "/prometheus/api/v1/query_range?" + urllib.parse.urlencode(parameters)

    def keep_asking(secret: str) -> None:
        link = served.connection()
        while not over.is_set():
            done[_ask(served, secret, slow, link)[0]] += 1

    threads = [
        threading.Thread(target=keep_asking, args=(secret,), daemon=True)
        for secret in secrets[:2]
        for _ in range(_SLOW_EACH)
    ]
    for thread in threads:
        thread.start()
    time.sleep(3)
    beside = _measured(served, secrets[2], query, hold_s)
    over.set()
    for name in alone:
        report.line(
            f"{name} alone, beside {len(threads)} slow queries of two organisations",
            **{f"{q}_ms": 1e3 * float(np.percentile(alone[name], p)) for q, p in (("p50", 50), ("p99", 99))},
            **{f"beside_{q}_ms": 1e3 * float(np.percentile(beside[name], p)) for q, p in (("p50", 50), ("p99", 99))},
        )
    report.line("slow queries meanwhile", **{str(status): number for status, number in done.items()})


def _measured(served: Served, secret: str, query: str, seconds: float) -> dict[str, list[float]]:
    """Seconds of each ping and of each query, asked evenly."""
    took: dict[str, list[float]] = {"ping": [], "query": []}

    def work(name: str, path: str, every_s: float) -> None:
        link, until = served.connection(), time.perf_counter() + seconds
        while time.perf_counter() < until:
            begun = time.perf_counter()
            assert _ask(served, secret, path, link)[0] in (200, 204)
            took[name].append(time.perf_counter() - begun)
            time.sleep(max(0.0, begun + every_s - time.perf_counter()))

    _in_threads([lambda: work("ping", "/ping", 0.02), lambda: work("query", query, 0.05)])
    return took


def _in_threads(acts: Sequence[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=act) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _light(now_s: int) -> str:
    parameters = {"query": _LIGHT, "start": now_s - 1_200, "end": now_s - 60, "step": 10}
    return "/prometheus/api/v1/query_range?" + urllib.parse.urlencode(parameters)


def _ask(served: Served, secret: str, path: str, link: http.client.HTTPConnection | None = None) -> tuple[int, bytes]:
    link = link or served.connection()
    link.request("GET", path, headers={"Authorization": f"Bearer {secret}"})
    answer = link.getresponse()
    return answer.status, answer.read()


def _push(served: Served, secret: str, now_s: int) -> None:
    times = range(now_s - _SPAN_S, now_s, _EVERY_S)
    lines = [f"par,host=h{host} v={at * (host + 1)} {1000 * at}" for at in times for host in range(_HOSTS)]
    link = served.connection()
    link.request("POST", "/write?precision=ms", "\n".join(lines), {"Authorization": f"Bearer {secret}"})
    answer = link.getresponse()
    text = answer.read()
    if answer.status != 204:
        raise RuntimeError(f"a body of samples was answered {answer.status}: {json.dumps(text.decode())}")


def _tokens(served: Served) -> list[str]:
    command = [str(ROOT / "bin/manage"), "shell", "-v0", "-c", _TOKENS.format(count=ORGANISATIONS)]
    environment = {**psutil.Process().environ(), "SPM_DATA": str(served.data)}
    done = subprocess.run(command, check=True, env=environment, capture_output=True, text=True)
    return [line.split()[1] for line in done.stdout.splitlines() if line.startswith("TOKEN ")]
