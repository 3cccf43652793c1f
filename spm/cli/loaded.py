"""Loads once what web server and worker have in common, and forks them, so that they share its memory.

``load`` imports their modules, which open nothing and start no thread that counts: Arrow's own survive a fork. It
freezes all objects, so that the collector of no child copies a page only to look at it. ``fork`` starts a child that
runs a module as ``python -m`` would, with its output in a pipe. A new version of the code needs a new parent. Enter by
``load``; ``spm.cli.serve`` calls it before it starts anything.
"""

import ctypes
import gc
import multiprocessing
import os
import runpy
import signal
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import IO

_LIBRARIES = ("numba", "pyarrow", "celery", "kombu", "requests", "uvicorn")  # of the modules; they read no setting
_MODULES = ("spm.web.asgi", "spm.web.loop_worker", "gunicorn.app.wsgiapp", "spm.celery", "celery.apps.worker")
_PR_SET_PDEATHSIG, _M_ARENA_MAX = 1, -8
_LIBC = ctypes.CDLL(None)


def load_libraries() -> None:
    """Load what needs neither a prepared data folder nor a setting, and takes half of the time."""
    for name in _LIBRARIES:
        import_module(name)


def load(environ: Mapping[str, str]) -> None:
    """Load all modules with these additions to the environment, which children inherit."""
    os.environ.update(environ)
    if arenas := environ.get("MALLOC_ARENA_MAX"):
        _LIBC.mallopt(_M_ARENA_MAX, int(arenas))  # the variable alone would count from the next program on
    modules = {name: import_module(name) for name in _MODULES}
    modules["spm.celery"].app.loader.init_worker()
    gc.collect()
    gc.freeze()


class Forked:
    """A forked process, with those parts of ``subprocess.Popen`` that a supervisor uses."""

    def __init__(self, process: multiprocessing.process.BaseProcess, stdout: IO[bytes]) -> None:
        assert process.pid is not None, "BUG: not started"
        self._process, self.pid, self.stdout = process, process.pid, stdout

    def poll(self) -> int | None:
        """None while it runs; then its exit status (a signal as a negative number)."""
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """Send a signal, if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def wait(self) -> None:
        """Wait for its end."""
        self._process.join()


def fork(command: Sequence[str], root: Path) -> Forked:
    """Start ``python -m MODULE ARGUMENT…`` as a child in a session of its own, which works in ``root``."""
    reading, writing = os.pipe()
    process = multiprocessing.get_context("fork").Process(target=_become, args=(command, root, writing, os.getpid()))
    process.start()
    os.close(writing)
    return Forked(process, open(reading, "rb", buffering=0))


def end_with_parent() -> None:
    """Let this process get SIGTERM when the thread that started it ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _become(command: Sequence[str], root: Path, output: int, parent: int) -> None:
    """In the child: leave behind what is the parent's alone, and run the module."""
    os.setsid()
    end_with_parent()
    if os.getppid() != parent:  # it ended before it could be waited for
        return
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    for place, stream in enumerate((os.open(os.devnull, os.O_RDONLY), output, output)):
        os.dup2(stream, place)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    sys.stdout, sys.stderr = (os.fdopen(place, "w", 1, closefd=False) for place in (1, 2))
    os.chdir(root)
    _, _, module, *arguments = command
    sys.argv = [module, *arguments]
    import_module("setproctitle").setproctitle(" ".join(command))  # it moves what the parent may still need
    runpy.run_module(module, run_name="__main__", alter_sys=True)
