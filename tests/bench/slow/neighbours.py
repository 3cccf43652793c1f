"""What others notice of slow and hostile clients: their answers' times by kind, and the server's memory.

Enter by ``open_target`` and ``measured``.
"""

import argparse
import http.client
import json
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
from tests.servers.product import Served, processes, start_product
from tests.servers.proxies import start_proxy

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


@contextmanager
def open_target(options: argparse.Namespace, folder: Path) -> Iterator[Target]:
    """The running server that the options name, or a new one, behind a proxy if they name one."""
    if options.url:
        parts = urlsplit(options.url)
        port = parts.port or 80
        yield Target(parts.hostname or "127.0.0.1", port, options.token, _listener(port))
        return
    served = start_product(folder / "product", environment={**psutil.Process().environ(), "SPM_BEHIND_PROXY": "1"})
    proxy, port = start_proxy(options.proxy, folder / "proxy", served.port) if options.proxy else (None, served.port)
    try:
        yield target_of(served, port)
    finally:
        if proxy is not None:
            proxy.stop()
        served.stop()


def target_of(served: Served, port: int = 0) -> Target:
    """Returns a server of this machine as the target; ``port``: of the proxy before it."""
    return Target("127.0.0.1", port or served.port, served.token, served.process.pid)


def _listener(port: int) -> int:
    """Returns the process that listens on a port of this machine, or the one that started it; 0 if none is seen."""
    links = [link for link in psutil.net_connections("tcp") if link.status == "LISTEN" and link.laddr]
    pids = [link.pid for link in links if link.laddr and link.laddr.port == port]
    return min((pid for pid in pids if pid), default=0)


def measured(
    target: Target, seconds: float, pages: Mapping[str, Mapping[str, str]] | None = None
) -> dict[str, list[float]]:
    """Seconds of each answer by kind, of clients that ask evenly; those with a token only if there is one.

    ``pages``: addresses of pages, each with the headers to ask with.
    """
    bearer = {"Authorization": f"Bearer {target.token}"} if target.token else None
    kinds: dict[str, tuple[float, bool, Callable[[http.client.HTTPConnection], object]]] = {
        "ping": (0.02, False, lambda link: ask(link, "GET", "/ping", {})),
        "new_connection": (0.05, True, lambda link: ask(link, "GET", "/ping", {})),
    }
    if bearer is not None:
        kinds["push"] = (0.04, False, lambda link: ask(link, "POST", "/write", bearer, _BODY))
        kinds["query"] = (0.1, False, lambda link: ask(link, "GET", _QUERY, bearer))
    for path, headers in (pages or {}).items():
        kinds[f"page {path}"] = (0.25, False, lambda link, path=path, sent=headers: ask(link, "GET", path, sent))  # type: ignore[misc]
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
    target: Target, until: float, took: list[float], every_s: float, anew: bool, act: Callable[..., object]
) -> None:
    link, due = http.client.HTTPConnection(target.host, target.port, timeout=60), time.perf_counter()
    while due < until:
        time.sleep(max(0.0, due - time.perf_counter()))
        begun = time.perf_counter()
        act(link)
        took.append(time.perf_counter() - begun)
        due = max(due + every_s, time.perf_counter())
        if anew:
            link.close()


def ask(
    link: http.client.HTTPConnection, method: str, path: str, headers: Mapping[str, str], body: bytes | None = None
) -> None:
    """Sends a request and reads its answer; raises for one that is no success."""
    link.request(method, path, body, dict(headers))
    answer = link.getresponse()
    answer.read()
    if answer.status not in (200, 204):
        raise RuntimeError(f"{path} was answered {answer.status}")


def print_line(name: str, took: Mapping[str, list[float]], memory_bytes: int) -> None:
    """Prints the median and the 99th percentile of each kind, and the memory."""
    figures: dict[str, object] = {}
    for kind, seconds in took.items():
        with suppress(IndexError):
            figures |= {f"{kind}_p50_ms": 1e3 * float(np.median(seconds)), f"{kind}_p99_ms": 1e3 * _p99(seconds)}
    report.line(name, **figures, memory_mb=memory_bytes / 1e6, asked=json.dumps({k: len(v) for k, v in took.items()}))


def print_ratio(before: Mapping[str, list[float]], during: Mapping[str, list[float]], grown_bytes: int) -> None:
    """Prints by how much the 99th percentiles and the memory have grown."""
    ratios: dict[str, object] = {f"{n}_p99": _p99(during[n]) / _p99(before[n]) for n in before if before[n]}
    report.line("ratio", memory_mb=grown_bytes / 1e6, **ratios)


def _p99(took: list[float]) -> float:
    return float(np.percentile(took, 99))
