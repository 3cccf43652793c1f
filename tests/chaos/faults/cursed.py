"""Bodies that end the process that handles them, as a fault in a compiled library would: a worker, or its sandbox.

``python -m tests.chaos.faults.cursed`` is ``ingest.worker.poison_sandbox`` with that fault.
"""

import ctypes
import os
import signal
import sys

from ingest.worker import poison_sandbox
from ingest.worker.poison_sandbox import SandboxedMessage

CURSES = ("curse: kill", "curse: exit", "curse: crash")


def suffer(body: bytes) -> None:
    """Die of the body, if it has a curse in it."""
    if b"curse: kill" in body:
        os.kill(os.getpid(), signal.SIGKILL)
    if b"curse: exit" in body:
        os._exit(7)
    if b"curse: crash" in body:
        ctypes.string_at(0)


def _handle(message: SandboxedMessage) -> None:
    suffer(message.body)
    _uncursed(message)


if __name__ == "__main__":
    _uncursed = poison_sandbox.handle
    poison_sandbox.handle = _handle
    poison_sandbox.main(sys.stdin.buffer, sys.stdout.buffer)
