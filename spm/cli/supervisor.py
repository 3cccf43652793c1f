"""The processes of the product: their commands, their logs, and the delay before one is started again.

``programs`` and ``restart_delay`` are pure. ``Child`` is one running process in a session of its own, so that Ctrl-C
reaches only the supervisor, which stops the others in order, and so that a process that it has left behind (a JVM) is
killed with it. A child also ends when its parent is killed. What ``spm.cli.loaded`` has loaded is forked: web server
and worker share the memory of it. Nothing here waits; ``spm.cli.serve`` has the loop.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from spm.cli import loaded
from spm.cli.options import NO_SPARK, Options
from spm.cli.preflight import WEB_METRICS
from spm.limits import HEALTHY_AFTER_S, LOG_BYTES_MAX, RESTART_DELAY_S_MAX

# A file that ends early, or whose pages are not sound, ends the process that reads it. Gunicorn says it of its workers;
# it ends those that hang by SIGABRT itself, so that only LMDB's own words tell the other kind.
SIGNALS_OF_DAMAGE = (signal.SIGBUS, signal.SIGABRT, signal.SIGSEGV)
_WORDS_OF_DAMAGE = (b"was sent SIGBUS!", b"was sent SIGSEGV!", b"mdb.c:")


KERNELS, KERNELS_NICE = "kernels", 5  # those who look at pages meanwhile go first


@dataclass(frozen=True, slots=True)
class Program:
    """A program to run: its name, its command, and additions to the environment.

    ``shares`` says whether the supervisor may fork it instead of running the command: the command is a module of those
    that ``spm.cli.loaded`` loads, and the environment is that of the others.
    """

    name: str
    command: tuple[str, ...]
    environ: Mapping[str, str]
    shares: bool = False


def programs(options: Options, agent_token: str | None) -> list[Program]:
    """The web server, the worker and, with a token, this host's agent; in the order in which they start."""
    python = sys.executable
    common = environment_of(options)
    bound = f"[{options.host}]:{options.port}" if ":" in options.host else f"{options.host}:{options.port}"
    web: tuple[str, ...] = (
        *(python, "-m", "gunicorn", "spm.web.asgi:open_dispatcher", "--bind", bound),
        *("--worker-class", "spm.web.loop_worker.LoopWorker", "--workers", str(options.web_processes)),
        *("--timeout", "90", "--graceful-timeout", "10"),
        "--no-control-socket",  # one for all instances of a user, outside the data folder
    )
    worker = (python, "-m", "spm.worker", "--beat-thread")
    metrics = {}
    if options.web_processes > 1:
        metrics = {"PROMETHEUS_MULTIPROC_DIR": str(options.data / WEB_METRICS)}
        web = (*web, "--preload")  # loaded once, by their parent: loading opens no store and starts no thread
    result = [
        Program("web", web, {**common, **metrics}, shares=not metrics),
        Program("worker", worker, common, shares=True),
    ]
    if agent_token:
        spool = str(options.data / "agent")
        own = {"SPM_AGENT_URL": options.own_url, "SPM_AGENT_TOKEN": agent_token, "SPM_AGENT_SPOOL": spool}
        result.append(Program("agent", (python, "-m", "ingest.agent"), {**common, **own}))
    return result


def kernels_program(options: Options) -> Program:
    """What compiles kernels beside the others, at a low priority, and ends."""
    command = ("nice", "-n", str(KERNELS_NICE), sys.executable, "manage.py", "prepare", "--kernels-alone")
    return Program(KERNELS, command, environment_of(options))


def environment_of(options: Options) -> dict[str, str]:
    """The variables that all processes of the product get in addition to the environment."""
    return {
        "DJANGO_SETTINGS_MODULE": "spm.settings",
        "SPM_DATA": str(options.data),
        "SPM_BASE_URL": os.environ.get("SPM_BASE_URL", options.url),
        "PYTHONUNBUFFERED": "1",
        "MALLOC_ARENA_MAX": "2",  # glibc keeps an arena per thread: tens of unused megabytes
        "OPENBLAS_NUM_THREADS": "1",  # nothing here multiplies matrices
        **({} if options.spark else {"SPM_SPARK_MASTER": NO_SPARK}),
    }


def deaths_of_damage(output: bytes) -> int:
    """How many processes, by this output of their parent, ended because the store's file is damaged."""
    return sum(output.count(words) for words in _WORDS_OF_DAMAGE)


def restart_delay(failures: int, ran_s: float) -> float:
    """Seconds before a process is started again that ran for ``ran_s``, after ``failures`` short runs in a row."""
    return 0.0 if ran_s >= HEALTHY_AFTER_S else min(2.0**failures, RESTART_DELAY_S_MAX)


class Log:
    """A log file that becomes the older one (``.1``) when it has grown to ``LOG_BYTES_MAX``; two are kept."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] = path.open("ab", buffering=0)

    def write(self, piece: bytes) -> None:
        """Append output of a process. On a full disk log lines are lost, but the product goes on and can be read."""
        with contextlib.suppress(OSError):
            self._file.write(piece)
            if self._file.tell() > LOG_BYTES_MAX:
                self._file.close()
                self._path.replace(self._path.with_suffix(".log.1"))
                self._file = self._path.open("ab", buffering=0)

    def last_lines(self, count: int) -> list[str]:
        """The end of the log, which shows people why a process ended."""
        return self._path.read_bytes()[-8192:].decode(errors="replace").splitlines()[-count:]


class Child:
    """One running program, which ends with this process."""

    def __init__(self, program: Program, *, root: Path, log: Log, started_at: float) -> None:
        self.program, self.log, self.started_at = program, log, started_at
        self.deaths_of_damage = 0  # that its output tells of its own children
        self._process = loaded.fork(program.command, root) if program.shares else _run(program, root)
        assert self._process.stdout is not None, "BUG: asked for a pipe"
        self.pipe = self._process.stdout
        os.set_blocking(self.pipe.fileno(), False)

    @property
    def pid(self) -> int:
        return self._process.pid

    def status(self) -> int | None:
        """None while it runs; then its exit status (a signal as a negative number)."""
        return self._process.poll()

    def drain(self) -> bool:
        """Move its output to the log; False when it has closed its output."""
        piece = self.pipe.read(65536)
        if piece:
            self.log.write(piece)
            self.deaths_of_damage += deaths_of_damage(piece)
        return piece != b""

    def ask_to_stop(self) -> None:
        """Send SIGTERM to the process itself, which stops its own children in order."""
        if self.status() is None:
            self._process.send_signal(signal.SIGTERM)

    def end(self) -> None:
        """Kill the remaining processes of its session, and collect its exit status."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        self.drain()
        self.pipe.close()


def _run(program: Program, root: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        program.command,
        cwd=root,
        env={**os.environ, **program.environ},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=loaded.end_with_parent,  # safe: no other thread of this process holds a lock of Python's
    )
