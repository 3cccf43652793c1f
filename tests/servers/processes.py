"""Starting, watching and ending one child process whose folder outlives the starter.

A process is known by its pid *and* its start time, both in a file of its folder: so ``bin/stack down`` can end what an
earlier command started, and never ends a stranger that was given the same pid later.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

POLL_S, PAUSE_MAX_S = 0.05, 1.0
PATIENCE_S = 60  # no wait is given up before: a bound matters only when it fails, and a busy machine is late at times
PORTS = range(20_000, 32_000)  # below the ports the kernel hands out: a client that calls a dead server in vain, again
#                                and again, would sooner or later be given that very port, and talk to itself
_given: deque[int] = deque(maxlen=len(PORTS) // 10)  # lately: who asked may not listen there yet
_giving = threading.Lock()


class NotReady(Exception):
    """A server died or did not answer in time; its log is named."""


@dataclass(frozen=True, slots=True)
class Process:
    """One child process with a log, in ``folder``."""

    name: str
    folder: Path

    @property
    def log(self) -> Path:
        """What it prints."""
        return self.folder / f"{self.name}.out"

    def start(self, command: Sequence[str | Path], environment: Mapping[str, str]) -> None:
        """Start it detached from this terminal, unless it runs already."""
        if self.alive():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as out:
            child = subprocess.Popen(
                [str(word) for word in command],
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                start_new_session=True,
            )
        self._file.write_text(f"{child.pid} {_born(child.pid)}")

    def adopt(self, pid: int) -> None:
        """Take a process that somebody else has started for this one."""
        self._file.write_text(f"{pid} {_born(pid)}")

    def wait(self, seconds: float) -> bool:
        """Whether it ended by itself within ``seconds``."""
        return _within(lambda: not self.alive(), seconds)

    def pid(self) -> int | None:
        """Its process id, while it lives."""
        try:
            pid, born = self._file.read_text().split()
        except (OSError, ValueError):
            return None
        _reap(int(pid))
        return int(pid) if _born(int(pid)) == born else None

    def alive(self) -> bool:
        """Whether it runs."""
        return self.pid() is not None

    def stop(self, grace_s: float = 60) -> None:
        """Ask it to end, and kill it if it does not within ``grace_s``."""
        self._signal(signal.SIGTERM)
        if not _within(lambda: not self.alive(), grace_s):
            self.kill()
        self._file.unlink(missing_ok=True)

    def kill(self) -> None:
        """Kill -9, and wait until it is gone."""
        self._signal(signal.SIGKILL)
        wait_until(lambda: not self.alive(), 10)

    def kill_all(self) -> None:
        """Kill -9 of it and of every process that it started and that stayed in its group."""
        pid = self.pid()
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            wait_until(lambda: not self.alive(), 10)

    def _signal(self, number: int) -> None:
        pid = self.pid()
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    @property
    def _file(self) -> Path:
        return self.folder / f"{self.name}.pid"


def _born(pid: int) -> str | None:
    """When ``pid`` began, in the kernel's own count; ``None`` for one that is gone or only waits to be reaped.

    Of a killed program with many threads the first one is done before the others: until they are, its ports are open.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    state, threads, born = fields[0], int(fields[17]), fields[19]
    return None if state == "Z" and threads <= 1 else born


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):  # not ours: someone else reaps it
        os.waitpid(pid, os.WNOHANG)


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether ``condition`` came true within ``seconds``, or within a minute if that is more.

    A look that takes long (a whole table, a program) is followed by as long a pause: what is waited for needs the CPU.
    """
    return _within(condition, max(seconds, PATIENCE_S))


def _within(condition: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while True:
        begun = time.monotonic()
        if condition():
            return True
        now = time.monotonic()
        if now > end:
            return False
        time.sleep(min(max(POLL_S, now - begun), PAUSE_MAX_S))


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Within, the process stands still with all its threads; afterwards it goes on, if it is there still.

    A signal reaches threads on other processors a moment later, in which a server may answer once more.
    """

    def still() -> bool:
        states = [stat.read_text().rpartition(")")[2].split()[0] for stat in Path(f"/proc/{pid}/task").glob("*/stat")]
        return set(states) == {"T"}

    os.kill(pid, signal.SIGSTOP)
    try:
        if not wait_until(still, 20):
            raise NotReady(f"process {pid} does not stop")
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def wait_ready(condition: Callable[[], bool], processes: Sequence[Process], seconds: float) -> None:
    """Wait for ``condition`` while all of ``processes`` live; raises ``NotReady`` naming the log to read."""

    def settled() -> bool:
        return condition() or not all(p.alive() for p in processes)

    if wait_until(settled, seconds) and all(p.alive() for p in processes):
        return
    dead = next((p for p in processes if not p.alive()), processes[-1])
    raise NotReady(f"{dead.name} is not ready after {seconds} s; see {dead.log}")


def answers(port: int) -> bool:
    """Whether something listens on ``port`` of this machine."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def kept_ports(folder: Path, names: Sequence[str]) -> dict[str, int]:
    """A port for each name: free ones at first, which no folder beside this one keeps; the same ones ever after."""
    file = folder / "ports.json"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        beside = [json.loads(other.read_text()) for other in folder.parent.glob("*/ports.json")]
        taken = {port for ports in beside for port in ports.values()}
        draft = file.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps(dict(zip(names, free_ports(len(names), taken), strict=True))))
        draft.rename(file)
    ports: dict[str, int] = json.loads(file.read_text())
    return ports


def free_ports(count: int, taken: Collection[int] = ()) -> list[int]:
    """``count`` ports nobody listens on and ``taken`` lacks, each time other ones, whichever thread asks."""
    ports: list[int] = []
    start = (os.getpid() * 37 + time.monotonic_ns() // 1_000_000) % len(PORTS)
    with _giving:
        for offset in range(len(PORTS)):
            port = PORTS[(start + offset) % len(PORTS)]
            if port not in taken and port not in _given and _free(port):
                ports.append(port)
                if len(ports) == count:
                    _given.extend(ports)
                    return ports
    raise NotReady("no free port on this machine")


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
