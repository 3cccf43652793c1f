"""Whether kernels are still compiled beside the server, at the first start and after an update, and how far they are.

The supervisor writes the file ``compiling`` into the data folder before it starts the server, and removes it when the
kernels are in numba's cache. As long as the file is there and its writer lives, a process that serves compiles nothing:
a kernel takes up to half a minute, in which a query would reach its time limit. Whatever needs a kernel that is not in
the cache yet raises ``StillCompiling``, which is answered as a store that is away: 503 with Retry-After, and a sentence
that says how far it is. Pushes are refused before their body is read. Enter by ``Compilation``.
"""

import json
import os
from pathlib import Path
from typing import Any

from numba.core import event

from spm.cli.preflight import COMPILING
from spm.errors import StillCompiling


class Compilation:
    """Whether kernels are being compiled beside this process. Once they are, it asks no more. Thread-safe."""

    def __init__(self, data: Path) -> None:
        self._note = data / COMPILING
        self._is_over = not self._note.exists()

    def check(self) -> None:
        """Raise ``StillCompiling`` as long as kernels are compiled beside this process."""
        if self._is_over:
            return
        progress = _progress(self._note)
        if progress is None:
            self._is_over = True
            return
        done, total = progress
        raise StillCompiling(
            f"the first start is compiling its kernels, {min(done, total)} of {total} are done:"
            " samples can be sent and read in some minutes"
        )

    def refuse_to_compile(self) -> None:
        """Let this process compile no kernel that another process is about to compile."""
        if not self._is_over:
            register: Any = event.register  # numba has no types
            register("numba:compile", _Refusal(self))


class _Refusal(event.Listener):
    """Hears of each kernel that numba is about to compile, since it is not in the cache; an error here prevents it."""

    def __init__(self, compilation: Compilation) -> None:
        self._compilation = compilation

    def on_start(self, _event: event.Event) -> None:
        self._compilation.check()

    def on_end(self, _event: event.Event) -> None:
        """Nothing: what was compiled is of use."""


def _progress(note: Path) -> tuple[int, int] | None:
    """Return how many kernels are compiled and how many there are; ``None`` if nobody compiles them (any more)."""
    try:
        announced = json.loads(note.read_text())
        os.kill(announced["pid"], 0)
    except (OSError, ValueError):
        return None
    return sum(1 for _ in Path(announced["folder"]).rglob("*.nbi")), announced["kernels"]
