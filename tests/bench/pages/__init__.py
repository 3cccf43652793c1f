"""Pages of a large app as a person's browser gets them: how long the server takes, and how many bytes leave it.

Every host is a source that pushes half an hour of its CPU and memory, so that a page has the states, small lines and
numbers of all. Times are those of one browser on a kept connection; bytes are those of compressed bodies. Enter by
``home``.
"""

import argparse
import http.client
import time

import numpy as np

from tests.bench import report
from tests.bench.slow.logins import log_in
from tests.servers.product import Served

STEP_MS, SPAN_MS = 10_000, 1_800_000
_WARM = 5  # requests before those that count: the first ones compile kernels and read the dictionary of series


def home(served: Served, options: argparse.Namespace) -> None:
    """Measure the home page of ``options.hosts`` hosts, and the part of it that comes again every ten seconds."""
    samples = _push_fleet(served, options.hosts)
    session = log_in(served, "127.0.0.1", served.login, served.password)[1]
    connection = served.connection()
    for name, path in (("home page", f"/apps/{served.app}/"), ("refresh", f"/apps/{served.app}/hosts")):
        for _ in range(_WARM):
            _get(connection, path, session)
        answers = [_get(connection, path, session) for _ in range(options.times)]
        report.line(
            f"{name}, {options.hosts} hosts",
            **report.quantiles([took for took, _ in answers]),
            compressed_kb=max(size for _, size in answers) / 1e3,
            samples=samples,
        )


def _push_fleet(served: Served, hosts: int) -> int:
    """Push the last half hour of all hosts, one body each; returns the number of samples."""
    connection, random = served.connection(), np.random.default_rng(1)
    times = np.arange(time.time_ns() // 1_000_000 - SPAN_MS, time.time_ns() // 1_000_000, STEP_MS, dtype=np.int64)
    for number in range(hosts):
        cpu, memory = random.integers(0, 100, (2, len(times))).tolist()
        lines = [
            f"cpu,host=host-{number} usage_total={busy}i {ts}\nmem,host=host-{number} used_percent={used}i {ts}\n"
            for busy, used, ts in zip(cpu, memory, times.tolist(), strict=True)
        ]
        headers = {**served.headers, "X-Spm-Source": f"host-{number}"}
        connection.request("POST", "/write?precision=ms", "".join(lines).encode(), headers)
        answer = connection.getresponse()
        if answer.status != 204:
            raise RuntimeError(f"the body of host-{number} was answered {answer.status}: {answer.read()!r}")
        answer.read()
    return 2 * hosts * len(times)


def _get(connection: http.client.HTTPConnection, path: str, session: str) -> tuple[float, int]:
    """Get a page as a browser does; returns the seconds, and the bytes of the body as it left the server."""
    began = time.perf_counter()
    connection.request("GET", path, headers={"Cookie": f"sessionid={session}", "Accept-Encoding": "gzip"})
    answer = connection.getresponse()
    size = len(answer.read())
    took = time.perf_counter() - began
    if answer.status != 200 or answer.headers["Content-Encoding"] != "gzip":
        raise RuntimeError(f"{path} was answered {answer.status}, {answer.headers['Content-Encoding'] or 'plain'}")
    return took, size
