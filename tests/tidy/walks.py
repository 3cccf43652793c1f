"""The files that one sample and one chart pass through, by a trace of a running web process.

A whole web process serves on loopback here, over LMDB. Each Python function of the product that begins in any of its
threads is noted: from a POST of known series until it is stored, and from a request of ``/api/v1/charts`` until it is
answered, fresh samples included. A walk is what ran in every one of ``TRIES`` tries, so that threads that look around
now and then do not count. ``BESIDE`` names the files that the data does not pass through, and why they run.

``python -m tests.tidy.walks`` prints the walks; the test of this module bounds them.
"""

import http.client
import json
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from types import FrameType

import django
import uvicorn
import uvloop
from django.core.management import call_command
from django.db import connections

TRIES = 3
ROOT = Path(__file__).resolve().parents[2]
_PREFIX = f"{ROOT}{os.sep}"
_ROOMS = ("spm", "ingest", "rollups", "alerts", "frontend")
_QUIET_S = 2.5  # until notes about earlier messages are written
_TAIL_S = 1.1  # until a query reads the list of pending records again
_AFTER_S = 0.1  # for what a thread does after its answer
BESIDE = {
    "spm/web/": "the web server: one for all requests",
    "ingest/http/urls.py": "the web server: its table of addresses",
    "frontend/compression.py": "the web server: middleware",
    "spm/bounded.py": "what all code uses: caches",
    "spm/clock.py": "what all code uses: time",
    "spm/telemetry.py": "what all code uses: own metrics",
    "spm/accounts/": "whose token it is and what it may do",
    "frontend/api/base.py": "whose token it is and what it may do",
    "spm/store/backends/lmdb_line.py": "which thread writes next",
    "ingest/accept/activity.py": "notes for the pages",
    "ingest/http/linger.py": "how long a batch waits for further bodies",
    "ingest/accept/rate_allowance.py": "limits: the app's rate",
    "spm/query/request/admission.py": "limits: queries at once",
    "spm/query/request/budget.py": "limits: what a query may use",
    "spm/query/request/pacing.py": "limits: slices of time",
    "spm/query/request/threads.py": "limits: kernels at once",
    "spm/query/request/provenance.py": "what the answer says of itself",
    "spm/query/promql/operators/annotations.py": "what the answer says of itself",
    "spm/store/versions/quarantine.py": "what the answer says of itself",
}


def why_beside(path: str) -> str:
    """Say why a file runs that the data does not pass through; "" for a file of the way itself."""
    return next((why for part, why in BESIDE.items() if path.startswith(part)), "")


class _Trace:
    """Notes the files of the product whose functions begin while it is on."""

    def __init__(self) -> None:
        self._files: set[str] | None = None

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        files, name = self._files, frame.f_code.co_filename
        if event == "call" and files is not None and name.startswith(_PREFIX):
            files.add(name.removeprefix(_PREFIX))

    def of(self, act: Callable[[], object]) -> set[str]:
        """Return the files that run for an act."""
        self._files = files = set[str]()
        act()
        time.sleep(_AFTER_S)
        self._files = None
        return {each for each in files if each.split(os.sep)[0] in _ROOMS}


def measure() -> Mapping[str, list[str]]:
    """Return the files of each walk."""
    trace = _Trace()
    threading.setprofile(trace)  # of threads that begin from now on: the server's, and all that it starts
    with _served() as (port, token):
        send = partial(_request, http.client.HTTPConnection("127.0.0.1", port, timeout=60), token)
        for _ in range(4):  # all caches are filled
            _push(send)
            time.sleep(_TAIL_S)
            _chart(send)
        time.sleep(_QUIET_S)
        samples = [trace.of(partial(_push, send)) for _ in range(TRIES)]
        charts = []
        for _ in range(TRIES):
            _push(send)
            time.sleep(_TAIL_S)
            charts.append(trace.of(partial(_chart, send)))
    return {"sample": sorted(set.intersection(*samples)), "chart": sorted(set.intersection(*charts))}


def _push(send: Callable[..., bytes]) -> None:
    send("POST", "/write", "\n".join(f"cpu,host=h{host} value={host} {time.time_ns()}" for host in range(3)))


def _chart(send: Callable[..., bytes]) -> None:
    now_ms = time.time_ns() // 1_000_000
    answer = json.loads(send("GET", f"/api/v1/charts?expr=cpu&start={now_ms - 60_000}&end={now_ms}&step=1000"))
    assert len(answer["series"]) == 3, answer


def _request(connection: http.client.HTTPConnection, token: str, method: str, path: str, body: str = "") -> bytes:
    connection.request(method, path, body or None, {"Authorization": f"Bearer {token}"})
    answer = connection.getresponse()
    content = answer.read()
    assert answer.status < 300, content
    return content


@contextmanager
def _served() -> Iterator[tuple[int, str]]:
    """A web process in a thread of this one: its port, and a token."""
    django.setup()
    call_command("migrate", verbosity=0)
    models, tokens = import_module("spm.accounts.models"), import_module("spm.accounts.tokens")
    app = models.App.objects.create(organisation=models.Organisation.objects.create(name="a"), name="a")
    _, token = tokens.issue(app, name="t", scopes=["read", "ingest"])
    connections.close_all()
    listener = socket.create_server(("127.0.0.1", 0))
    servers: list[uvicorn.Server] = []

    async def serve() -> None:
        dispatcher = import_module("spm.web.asgi").open_dispatcher()
        protocol = partial(
            import_module("spm.web.http_protocol").BoundedHttpProtocol, connections=dispatcher.connections
        )
        config = uvicorn.Config(
            dispatcher,
            http=protocol,  # type: ignore[arg-type]  # anything that makes a protocol
            interface="asgi3",
            lifespan="off",
            access_log=False,
        )
        servers.append(uvicorn.Server(config))
        await servers[0].serve([listener])
        dispatcher.close()

    thread = threading.Thread(target=lambda: uvloop.run(serve()), daemon=True)
    thread.start()
    yield listener.getsockname()[1], token
    servers[0].should_exit = True
    thread.join(20)


def _lines(walks: Mapping[str, list[str]]) -> Iterator[str]:
    for name, files in walks.items():
        own = [each for each in files if not why_beside(each)]
        yield f"one {name}: {len(own)} files that its data passes through, {len(files)} with all that runs beside"
        yield from (f"    {each:50}{why_beside(each)}".rstrip() for each in files)


if __name__ == "__main__":
    for name in [each for each in os.environ if each.startswith(("SPM_", "DATABASE"))]:
        del os.environ[name]  # those of a test that starts this program
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    os.environ["SPM_OWN_METRICS_S"] = "0"  # the product's own samples take the same way
    logging.captureWarnings(True)
    measured = measure()
    print(json.dumps(measured) if "--json" in sys.argv else "\n".join(_lines(measured)))
