"""A program at a terminal of its own, as a person runs it: its output as it comes, Ctrl-C, and what it has cost."""

import contextlib
import os
import pty
import re
import threading
import time
from collections.abc import Sequence
from types import TracebackType

import psutil

_LOOK_S = 0.2


class Terminal:
    """Runs one command in a session whose terminal this is. Leaving it kills what still runs."""

    def __init__(self, command: Sequence[str]) -> None:
        self._keys, screen = pty.openpty()
        # setsid makes the terminal that of the command, so that its keys become signals.
        self._process = psutil.Popen(
            ["setsid", "--ctty", "--wait", *command], stdin=screen, stdout=screen, stderr=screen
        )
        os.close(screen)
        self.output = ""
        self.began = time.monotonic()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            with contextlib.suppress(psutil.NoSuchProcess):
                for child in self._process.children():
                    child.kill()
            self._process.kill()
            self._process.wait()
        self._reader.join(10)
        os.close(self._keys)

    def _read(self) -> None:
        """Reads until the last process has closed the terminal."""
        with contextlib.suppress(OSError):
            while data := os.read(self._keys, 65_536):
                self.output += data.decode(errors="replace").replace("\r\n", "\n")

    def wait_for(self, pattern: str, seconds: float) -> re.Match[str]:
        """Returns the first place of the output that matches; fails when the command ends before, or is too slow."""
        until = time.monotonic() + seconds
        while True:
            ended = self._process.poll() is not None
            if ended:
                self._reader.join(10)
            if match := re.search(pattern, self.output):
                return match
            assert not ended, f"it ended before it said {pattern}:\n{self.output[-4000:]}"
            assert time.monotonic() < until, f"it did not say {pattern} in {seconds} s:\n{self.output[-4000:]}"
            time.sleep(_LOOK_S)

    def press_ctrl_c(self) -> None:
        """Sends what the keys send."""
        os.write(self._keys, b"\x03")

    def wait(self, seconds: float) -> int:
        """Returns the exit status, once it has ended by itself."""
        status = int(self._process.wait(seconds))
        self._reader.join(10)
        return status

    def spent(self) -> tuple[float, float]:
        """Returns the seconds since it began, and the seconds of CPU of it and all that it started, ended or not."""
        used = 0.0
        for process in [self._process, *self._process.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                used += times.user + times.system + times.children_user + times.children_system
        return time.monotonic() - self.began, used
