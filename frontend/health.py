"""``/livez`` and ``/readyz``, also under Prometheus' names: whether this process lives, and whether it can work.

Orchestrators and proxies ask without a login, often. ``/readyz`` asks the database, the store and, where there is one,
the broker, at most once a second and for a second at most; an answer names nothing but which of them is away. A disk
without room, or read-only, takes no writes while all reads go on: that is "degraded", 503 only for who asks
``?strict=1``. While the first start compiles kernels, no samples are taken or read: not ready.
"""

import os
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from urllib.parse import urlsplit

from django.conf import settings
from django.db import connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe

from spm import limits
from spm.clock import SystemClock
from spm.errors import StillCompiling, StoreFull
from spm.store.backends import open_backend

BUDGET_S = 1.0
PARTS_MAX = 8  # that are asked at once
ROOM_BYTES_MIN = 2 * limits.LMDB_TRANSACTION_BYTES_MAX  # one transaction of the store, and the logs of the database
_AMQP_PORTS = {"amqp": 5672, "amqps": 5671}
FULL = "full"  # the state of a part that answers reads and takes no writes
COMPILING = "compiling"  # the state of kernels that another process is compiling
_NOT_KEPT = {"Cache-Control": "no-store"}


@require_safe
def live(_request: HttpRequest) -> HttpResponse:
    """Answer 200: the process takes requests."""
    return HttpResponse("alive\n", content_type="text/plain", headers=_NOT_KEPT)


@require_safe
def ready(request: HttpRequest) -> JsonResponse:
    """Answer 200, or 503 with what does not answer within a second. ``?strict=1``: 503 also where only reads go on."""
    states = _READINESS.states()
    if not {"away", COMPILING}.isdisjoint(states.values()):
        status, code = "not ready", 503
    elif FULL in states.values():
        status, code = "degraded", 503 if request.GET.get("strict") == "1" else 200
    else:
        status, code = "ready", 200
    return JsonResponse({"status": status, "checks": states}, status=code, headers=_NOT_KEPT)


class Readiness:
    """Asks all parts at once; one that still has not answered is not asked again. Thread-safe.

    ``checks``: the name of a part → what raises while it is away, ``StoreFull`` while it takes no writes, and
    ``StillCompiling`` before its kernels are there. An answer counts for ``BUDGET_S``.
    """

    def __init__(self, checks: dict[str, Callable[[], object]]) -> None:
        self._checks, self._clock, self._lock = checks, SystemClock(), threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._pending: dict[str, Future[object]] = {}
        self._states: tuple[float, dict[str, str]] = (float("-inf"), {})

    def add(self, name: str, check: Callable[[], object]) -> None:
        """Ask one more part from now on."""
        with self._lock:
            self._checks[name] = check

    def states(self) -> dict[str, str]:
        """Return the name of each part → ``ok``, ``full``, ``compiling`` or ``away``."""
        with self._lock:
            checked_s, states = self._states
            if self._clock.monotonic() - checked_s < BUDGET_S:
                return states
            if self._pool is None:
                self._pool = ThreadPoolExecutor(PARTS_MAX, thread_name_prefix="ready")
            for name, check in self._checks.items():
                if name not in self._pending or self._pending[name].done():
                    self._pending[name] = self._pool.submit(check)
            wait(self._pending.values(), BUDGET_S)
            states = {name: _state(pending) for name, pending in self._pending.items()}
            self._states = (self._clock.monotonic(), states)
            return states


def _state(pending: "Future[object]") -> str:
    if not pending.done():
        return "away"
    match pending.exception():
        case None:
            return "ok"
        case StoreFull():
            return FULL
        case StillCompiling():
            return COMPILING
        case _:
            return "away"


def _ask_database() -> None:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    finally:
        connection.close()  # of this thread


def _ask_store() -> None:
    open_backend(settings.SPM_STORE_URL).get("config", [b"identity"])


def _ask_broker() -> None:
    if settings.SPM_TRANSPORT == "amqp":
        address = urlsplit(settings.SPM_AMQP_URL)
        place = (address.hostname or "localhost", address.port or _AMQP_PORTS.get(address.scheme, 5672))
        with closing(socket.create_connection(place, timeout=BUDGET_S)):
            pass


def _ask_disk() -> None:
    """Look at the disks of what this machine holds; HBase and PostgreSQL watch their own. Nothing is written."""
    folders = [urlsplit(settings.SPM_STORE_URL).path] if settings.SPM_STORE_URL.startswith("lmdb:") else []
    if settings.DATABASES["default"]["ENGINE"].endswith("sqlite3"):
        folders.append(str(settings.SPM_DATA))
    for folder in folders:
        disk = os.statvfs(folder)
        if disk.f_flag & os.ST_RDONLY or disk.f_bavail * disk.f_frsize < ROOM_BYTES_MIN:
            raise StoreFull("the disk takes no writes")


_READINESS = Readiness({"database": _ask_database, "store": _ask_store, "broker": _ask_broker, "disk": _ask_disk})


def ask_also(name: str, check: Callable[[], object]) -> None:
    """Let ``/readyz`` ask one more part, which the process that serves knows."""
    _READINESS.add(name, check)
