"""Lets only one run at a time work on a machine, to avoid double work. Correctness never depends on it (PROTOCOL 14).

The lock is the operating system's, on a file in the data folder: it is released when its process ends, however it ends.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from spm.clock import Clock

_RETRY_S = 0.2


@contextmanager
def run_lock(folder: Path, clock: Clock, *, wait_s: float = 0.0) -> Iterator[bool]:
    """Takes the lock for the body; yields whether it got it, after waiting at most ``wait_s``."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "roll.lock").open("w") as file:
        until = clock.monotonic() + wait_s
        free = _try_lock(file)
        while not free and clock.monotonic() < until:
            clock.sleep(_RETRY_S)
            free = _try_lock(file)
        yield free


def _try_lock(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
