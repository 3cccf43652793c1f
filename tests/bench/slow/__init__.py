"""What slow and hostile clients cost everybody else: pings, pushes and queries without them, and beside them.

The slow clients are a second process (``clients``): heads, bodies and readers that drip, and idle connections. Whatever
the server closes is opened again at once. Enter by ``slow``.
"""

import argparse
import http.client
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import psutil

from tests.bench import report
from tests.servers.product import ROOT, processes, start_product
from tests.servers.proxies import start_proxy

_WARM_S, _SETTLE_S = 3, 3
_BODY = "".join(f"slow,host=a value{n}={n}\n" for n in range(100)).encode()
_QUERY = "/prometheus/api/v1/query?query=sum(rate(slow_value1[5m]))"


@dataclass(frozen=True, slots=True)
class Target:
    """A server: where it answers, the token for pushes and queries, and the process whose tree is it, if known."""

    host: str
    port: int
    token: str
    pid: int

    def memory_bytes(self) -> int:
        """Returns the bytes of the web processes that no other process shares; 0 if they are not known."""
        web = [process for process, line in processes(self.pid) if "gunicorn" in line] if self.pid else []
        return sum(process.memory_full_info().uss for process in web)


def slow(options: argparse.Namespace, folder: Path) -> None:
    """Measure without slow clients, then beside ``options.slow`` of each kind for ``options.hold`` seconds."""
    with _target(options, folder) as target:
        _measured(target, _WARM_S)
        before, memory = _measured(target, options.hold / 2), target.memory_bytes()
        _line("without slow clients", before, memory)
        command = [sys.executable, "-m", "tests.bench.slow.clients", target.host, str(target.port), str(options.slow)]
        clients = subprocess.Popen(
            [*command, target.token], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        assert clients.stdin is not None
        assert clients.stdout is not None
        print(clients.stdout.readline().strip(), flush=True)
        time.sleep(_SETTLE_S)
        during, grown = _measured(target, options.hold), target.memory_bytes()
        clients.stdin.write("\n")
        clients.stdin.flush()
        print(clients.stdout.readline().strip(), flush=True)
        _line(f"beside {options.slow} of each kind", during, grown)
        ratios = {f"{name}_p99": _p99(during[name]) / _p99(before[name]) for name in before if before[name]}
        report.line("ratio", memory_mb=(grown - memory) / 1e6, **ratios)
        clients.stdin.close()
        clients.wait(60)
        time.sleep(2)
        report.line("memory afterwards", memory_mb=target.memory_bytes() / 1e6)


@contextmanager
def _target(options: argparse.Namespace, folder: Path) -> Iterator[Target]:
    if options.url:
        parts = urlsplit(options.url)
        port = parts.port or 80
        yield Target(parts.hostname or "127.0.0.1", port, options.token, _listener(port))
        return
    served = start_product(folder / "product", environment={**psutil.Process().environ(), "SPM_BEHIND_PROXY": "1"})
    proxy, port = start_proxy(options.proxy, folder / "proxy", served.port) if options.proxy else (None, served.port)
    try:
        yield Target("127.0.0.1", port, served.token, served.process.pid)
    finally:
        if proxy is not None:
            proxy.stop()
        served.stop()


def _listener(port: int) -> int:
    """Returns the process that listens on a port of this machine, or the one that started it; 0 if none is seen."""
    links = [link for link in psutil.net_connections("tcp") if link.status == "LISTEN" and link.laddr]
    pids = [link.pid for link in links if link.laddr and link.laddr.port == port]
    return min((pid for pid in pids if pid), default=0)


def _measured(target: Target, seconds: float) -> dict[str, list[float]]:
    """Seconds of each answer by kind, of clients that ask evenly; those with a token only if there is one."""
    bearer = {"Authorization": f"Bearer {target.token}"} if target.token else None
    kinds: dict[str, tuple[float, bool, Callable[[http.client.HTTPConnection], object]]] = {
        "ping": (0.02, False, lambda link: _request(link, "GET", "/ping", {})),
        "new_connection": (0.05, True, lambda link: _request(link, "GET", "/ping", {})),
    }
    if bearer is not None:
        kinds["push"] = (0.04, False, lambda link: _request(link, "POST", "/write", bearer, _BODY))
        kinds["query"] = (0.1, False, lambda link: _request(link, "GET", _QUERY, bearer))
    took: dict[str, list[float]] = {name: [] for name in kinds}
    until = time.perf_counter() + seconds
    threads = [
        threading.Thread(target=_evenly, args=(target, until, took[name], *kind)) for name, kind in kinds.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return took


def _evenly(
    target: Target, until: float, took: list[float], every_s: float, anew: bool, ask: Callable[..., object]
) -> None:
    link, due = http.client.HTTPConnection(target.host, target.port, timeout=60), time.perf_counter()
    while due < until:
        time.sleep(max(0.0, due - time.perf_counter()))
        begun = time.perf_counter()
        ask(link)
        took.append(time.perf_counter() - begun)
        due = max(due + every_s, time.perf_counter())
        if anew:
            link.close()


def _request(
    link: http.client.HTTPConnection, method: str, path: str, headers: Mapping[str, str], body: bytes | None = None
) -> None:
    link.request(method, path, body, dict(headers))
    answer = link.getresponse()
    answer.read()
    if answer.status not in (200, 204):
        raise RuntimeError(f"{path} was answered {answer.status}")


def _p99(took: list[float]) -> float:
    return float(np.percentile(took, 99))


def _line(name: str, took: Mapping[str, list[float]], memory_bytes: int) -> None:
    figures: dict[str, object] = {}
    for kind, seconds in took.items():
        with suppress(IndexError):
            figures |= {f"{kind}_p50_ms": 1e3 * float(np.median(seconds)), f"{kind}_p99_ms": 1e3 * _p99(seconds)}
    report.line(name, **figures, memory_mb=memory_bytes / 1e6, asked=json.dumps({k: len(v) for k, v in took.items()}))
