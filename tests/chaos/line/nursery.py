"""The parent of processes that are killed all the time: it loads the product once, and forks whatever is asked for.

A Celery worker that begins from nothing takes two seconds of CPU to load its libraries and compiled kernels; a forked
one is there at once, so that a test kills more often in the same time. Nothing is opened before a fork: connections,
threads and process numbers are the child's own, and the environment of all children is the one the parent began with.

``Nursery(folder, environment)`` begins with the first ``fork``; ``python -m tests.chaos.line.nursery`` is the parent
itself, which reads one request a line (arguments, folder, log) and answers with the child's number.
"""

import gc
import importlib
import json
import os
import runpy
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tests.servers.processes import Process

LOADED = (
    "spm.worker",
    "spm.web.asgi",
    "spm.web.urls",
    "celery.apps.worker",
    "celery.concurrency.thread",
    "celery.worker.components",
    "gunicorn.app.wsgiapp",
    "spm.web.loop_worker",
    "ingest.transport.amqp",
    "ingest.worker.connections",
    "spm.store.backends.hbase",
    "spm.store.backends.lmdb",
    "tests.chaos.faults.consumers",
)


@dataclass(slots=True)
class Nursery:
    """One parent and its children's environment."""

    folder: Path
    environment: Mapping[str, str]
    _parent: "subprocess.Popen[str] | None" = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def fork(self, process: Process, arguments: Sequence[str | Path], folder: Path) -> None:
        """Start ``process`` in ``folder``, unless it runs: a module or a file of Python, with its arguments."""
        if not process.alive():
            process.log.write_bytes(b"")
            process.adopt(self._ask(_request(arguments, folder, process.log, process.log)))

    def run(self, arguments: Sequence[str | Path], folder: Path, timeout_s: float) -> str:
        """What a child prints that ends by itself; raises ``AssertionError`` with its complaint when it fails."""
        process = Process(f"run-{threading.get_ident()}", self.folder)
        errors, status = self.folder / f"{process.name}.err", _status(process.log)
        status.unlink(missing_ok=True)
        process.adopt(self._ask(_request(arguments, folder, process.log, errors)))
        try:
            assert process.wait(timeout_s), f"{arguments} takes too long: {errors.read_text()[-2000:]}"
            ended = status.read_text() if status.exists() else "killed"
            assert ended == "0", f"{arguments}, {ended}: {errors.read_text()[-2000:]}"
        finally:
            process.kill()
        return process.log.read_text()

    def close(self) -> None:
        """End the parent; its children live on."""
        if self._parent is not None:
            self._parent.communicate()
            self._parent = None

    def _ask(self, request: Mapping[str, Any]) -> int:
        with self._lock:
            if self._parent is None:
                self._parent = self._begin()
            into, out = self._parent.stdin, self._parent.stdout
            assert into is not None, "BUG: a pipe was asked for"
            assert out is not None, "BUG: a pipe was asked for"
            into.write(json.dumps(request) + "\n")
            into.flush()
            answer = out.readline()
            assert answer, f"the nursery is gone: {(self.folder / 'nursery.out').read_text()[-2000:]}"
            return int(answer)

    def _begin(self) -> "subprocess.Popen[str]":
        with (self.folder / "nursery.out").open("wb") as out:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.line.nursery"],
                env=dict(self.environment),
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=out,
                start_new_session=True,
            )


def _request(arguments: Sequence[str | Path], folder: Path, log: Path, errors: Path) -> dict[str, Any]:
    return {
        "arguments": [str(argument) for argument in arguments],
        "folder": str(folder),
        "log": str(log),
        "errors": str(errors),
    }


def _status(log: str | Path) -> Path:
    """Where a child leaves its exit code."""
    return Path(f"{log}.status")


def main() -> None:
    """Load, then fork a child for each line; a child leaves the loop and becomes what the line names."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what loading prints is no answer
    _load()
    for line in sys.stdin:
        _bury()
        child = os.fork()
        if child == 0:
            answers.close()
            _become(json.loads(line))
        print(child, file=answers, flush=True)


def _load() -> None:
    importlib.import_module("django").setup()
    for name in LOADED:
        importlib.import_module(name)
    importlib.import_module("spm.cli.warm_kernels").warm_pipeline()
    gc.collect()
    gc.freeze()
    others = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    assert not others, f"a child would wait for ever for what {others} hold at the moment of its fork"


def _bury() -> None:
    """Let go of children that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def _become(request: Mapping[str, Any]) -> None:
    """Detach, and run what was asked for to its end; never returns."""
    os.setsid()
    os.chdir(request["folder"])
    _redirect(request["log"], request["errors"])
    arguments: list[str] = request["arguments"]
    sys.argv = arguments
    status = 1
    try:
        if arguments[0].endswith(".py"):
            runpy.run_path(arguments[0], run_name="__main__")
        else:
            runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        raise
    finally:
        _status(request["log"]).write_text(str(status))
    sys.exit(0)


def _redirect(log: str, errors: str) -> None:
    for name in (log, errors):
        Path(name).write_bytes(b"")
    for target, name in ((0, os.devnull), (1, log), (2, errors)):
        how = os.O_RDONLY if target == 0 else os.O_WRONLY | os.O_CREAT | os.O_APPEND
        os.dup2(os.open(name, how, 0o644), target)
    streams: tuple[IO[str], IO[str]] = (os.fdopen(1, "w", 1, closefd=False), os.fdopen(2, "w", 1, closefd=False))
    sys.stdout, sys.stderr = streams
    sys.stdin = open(os.devnull)  # noqa: SIM115  # as long as the process


if __name__ == "__main__":
    main()
