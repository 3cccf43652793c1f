"""This process' own metrics, sent to the product's own app every so often, and accepted like those of any app.

Enter by ``start``, in the process that serves, or by ``metrics_thread`` for a caller that starts it. The thread wakes
by the clock alone, so that its own messages can never make it send more. It sends the present values once, and forgets
what could not be sent: the next ones follow in half a minute. Nothing waits for it, and its failures are counted, never
raised. How often: the setting ``SPM_OWN_METRICS_S``; 0 is never. ``send`` takes values that another module gathered.
"""

import fcntl
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from django.conf import settings
from django.db import DatabaseError, close_old_connections

from ingest.accept.identity import Sender
from ingest.accept.process_acceptor import process_acceptor
from spm import limits, telemetry
from spm.accounts import internal_app
from spm.clock import Clock, SystemClock, random_bytes
from spm.errors import SpmError
from spm.store.backends import open_backend
from spm.telemetry import MetricValue
from spm.wire import Parsed, SeriesTable, canonical

_LOG = logging.getLogger(__name__)
_STOP_S = 2.0
Send = Callable[[str, Iterable[MetricValue]], bool]


def send(source: str, values: Iterable[MetricValue]) -> bool:
    """Have present values accepted in the product's own app; return False when there is no such app."""
    app = internal_app.app_number()
    if app is None:
        return False
    parsed = parsed_of(source, values, SystemClock().now_ms())
    process_acceptor().accept(parsed, sender=Sender(app, source), message_id=random_bytes(16))
    return True


def parsed_of(source: str, values: Iterable[MetricValue], now_ms: int) -> Parsed:
    """Return values as a message; ``source`` becomes the label ``process``, and this machine's name ``host``."""
    rows = list(values)
    shared = {"process": source, "host": socket.gethostname()}
    table = SeriesTable.from_canonical([canonical(row.name, {**row.labels, **shared}) for row in rows])
    numbers = np.array([row.value for row in rows], np.float64)
    index = np.arange(len(rows), dtype=np.int32)
    return Parsed(table, index, np.full(len(rows), now_ms, np.int64), numbers)


class ProcessMetricsThread:
    """The thread that sends the metrics of one process."""

    def __init__(
        self, name: str, every_s: float, *, send: Send = send, probe: Callable[[], None] | None = None
    ) -> None:
        self._name, self._every_s, self._send, self._probe = name, every_s, send, probe or probe_store
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="own-metrics", daemon=True)
        self._failing = False

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop without a final message: the process must not wait for a queue that is away."""
        self._stopping.set()
        self._thread.join(_STOP_S)

    def _run(self) -> None:
        while not self._stopping.wait(self._every_s):
            close_old_connections()  # no request ends here, after which Django would do it
            self.tick()

    def tick(self) -> None:
        """Probe the store and send the present values; failures are counted."""
        try:
            self._probe()
            outcome = "done" if self._send(self._name, telemetry.metric_values()) else "nowhere"
            self._failing = False
        except (SpmError, DatabaseError) as error:
            outcome = "failed"
            if not self._failing:
                _LOG.warning("own metrics cannot be sent now: %s", error)
            self._failing = True
        except Exception:  # a loop's top: metrics must not end a process, nor themselves
            outcome = "failed"
            _LOG.exception("own metrics failed unexpectedly")
        telemetry.OWN_PUSHES.labels(outcome).inc()


def probe_store(clock: Clock | None = None) -> None:
    """Read one row of the store, and record how long it took."""
    try:
        with telemetry.timed(telemetry.STORE_S, clock=clock):
            open_backend(settings.SPM_STORE_URL).get("config", [b"processes"])
    except SpmError:
        telemetry.STORE_FAILURES.inc()


def metrics_thread(kind: str) -> ProcessMetricsThread | None:
    """Return a thread for this process, not started yet; None when the settings switch it off."""
    every_s = min(settings.SPM_OWN_METRICS_S, limits.OWN_METRICS_EVERY_S_MAX)
    return ProcessMetricsThread(name_of(kind, Path(settings.SPM_DATA)), every_s) if every_s > 0 else None


class _Starter:
    """Starts the thread once per process. A child that is forked later is another process without a thread."""

    def __init__(self) -> None:
        self._pid, self._lock = 0, threading.Lock()
        os.register_at_fork(after_in_child=self._reset)

    def __call__(self, kind: str) -> None:
        """Start to send, unless this process does already or the settings switch it off."""
        if self._pid == os.getpid():
            return
        with self._lock:
            if self._pid == os.getpid():
                return
            self._pid = os.getpid()
            thread = metrics_thread(kind)
        if thread is not None:
            thread.start()

    def _reset(self) -> None:
        self._pid, self._lock = 0, threading.Lock()


start = _Starter()


def name_of(kind: str, data: Path) -> str:
    """Return ``web-0``, ``web-1``…: the first name of the kind that no other process on this data folder holds.

    Names come again after a restart, so that charts go on, and the number of series stays that of the processes.
    """
    folder = data / "metrics"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(limits.OWN_PROCESSES_MAX):
            handle = os.open(folder / f"{kind}-{number}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(handle)
                continue
            return f"{kind}-{number}"  # the handle stays open: the name is held as long as the process lives
    except OSError:  # a disk without room costs a name, not the metrics
        _LOG.warning("no place for the names of processes in %s", folder)
    return f"{kind}-x"
