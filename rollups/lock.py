"""One run at a time on a machine, so that two do not do the same work. Correctness never rests on it (rule 14).

The lock is the operating system's, on a file in the data folder: it goes with its process, however that ends.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def alone(folder: Path) -> Iterator[bool]:
    """Whether nobody else runs; while the body lasts, nobody else does."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "roll.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True
