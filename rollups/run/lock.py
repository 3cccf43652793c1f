"""One run at a time on a machine, so that two do not do the same work. Correctness never rests on it (rule 14).

The lock is the operating system's, on a file in the data folder: it goes with its process, however that ends.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from spm.clock import Clock

_LOOK_S = 0.2


@contextmanager
def alone(folder: Path, clock: Clock, *, wait_s: float = 0.0) -> Iterator[bool]:
    """Whether nobody else runs, after at most ``wait_s``; while the body lasts, nobody else does."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "roll.lock").open("w") as file:
        until = clock.monotonic() + wait_s
        free = _taken(file)
        while not free and clock.monotonic() < until:
            clock.sleep(_LOOK_S)
            free = _taken(file)
        yield free


def _taken(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
