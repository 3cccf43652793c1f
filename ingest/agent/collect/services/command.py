"""Runs a command of the configuration at every collection, or less often, and turns its output into points.

``format = "lines"`` reads Influx line protocol from the output. ``format = "nagios"`` reads the output of a Nagios
check: the exit code is the state (0 ok, 1 warning, 2 critical, 3 unknown), and ``|`` begins the numbers:
``check,name=… state=…``. There is no shell: the option ``run`` is a list of arguments. The command has a process group
of its own, which is killed completely after its timeout; its output is read up to ``AGENT_COMMAND_BYTES_MAX``. With
``every_s`` it runs less often than the agent collects.
"""

import os
import re
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO

from ingest.agent.collect.base import Options
from ingest.agent.collect.fetch import Unreachable
from ingest.agent.collect.line_protocol import read_lines
from ingest.agent.lines import Point
from spm import limits
from spm.clock import SystemClock
from spm.errors import Refused

FORMATS = ("lines", "nagios")
OPTIONS: Mapping[str, type] = {"run": list, "format": str, "every_s": float}
_PERFORMANCE = re.compile(r"(?:'((?:[^']|'')*)'|([^\s=']+))=(-?[0-9.]+(?:[eE][+-]?\d+)?)([A-Za-z%]*)[^\s]*")
_STATES = (0, 1, 2, 3)
_CLOCK = SystemClock()


class CommandCollector:
    """Runs one command."""

    def __init__(self, options: Options) -> None:
        self._run, self._name = list(options["run"]), options.get("name") or os.path.basename(options["run"][0])
        self._format = options.get("format", "lines")
        self._timeout_s = float(options.get("timeout_s", limits.AGENT_COMMAND_S))
        self._every_s = float(options.get("every_s", 0.0))
        self._next_s = 0.0

    def __call__(self) -> Sequence[Point]:
        if _CLOCK.monotonic() < self._next_s:
            return []
        self._next_s = _CLOCK.monotonic() + self._every_s * 0.95  # collections are not exact to the millisecond
        code, output, errors = run_command(self._run, self._timeout_s)
        if self._format == "nagios":
            return nagios_points(self._name, code, output)
        points, bad = read_lines(output)
        if code:
            raise Unreachable(f"exit code {code}: {errors or output[:100].strip()}")
        if bad and not points:
            raise Unreachable(f"the output is no line protocol: {bad[0]}")
        return [*points, Point("command", {"lines_bad": len(bad)}, {"name": self._name})] if bad else points


def nagios_points(name: str, code: int, output: str) -> Sequence[Point]:
    """Returns the points of a check: its state, and the numbers after ``|``."""
    numbers = "\n".join(line.partition("|")[2] for line in output.splitlines() if "|" in line)
    fields: dict[str, float] = {"state": code if code in _STATES else 3}
    points = [Point("check", fields, {"name": name})]
    for label, plain, value, unit in _PERFORMANCE.findall(numbers)[: limits.AGENT_ROWS_MAX]:
        with suppress(ValueError):
            labels = {"name": name, "label": (label or plain).replace("''", "'"), "unit": unit}
            points.append(Point("check_value", {"value": float(value)}, labels))
    return points


def run_command(arguments: Sequence[str], timeout_s: float) -> tuple[int, str, str]:
    """Returns (exit code, output, beginning of stderr); ``Unreachable``: it cannot run, or does not end in time."""
    try:
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env={**{k: v for k, v in os.environ.items() if not k.startswith("SPM_AGENT_")}, "LC_ALL": "C.UTF-8"},
        )
    except (OSError, ValueError) as error:
        raise Unreachable(f"cannot run {arguments[0]}: {error}") from None
    assert process.stdout is not None, "BUG: no pipe"
    assert process.stderr is not None, "BUG: no pipe"
    readers = [_PipeReader(process.stdout, limits.AGENT_COMMAND_BYTES_MAX), _PipeReader(process.stderr, 1_000)]
    try:
        code = process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        _kill(process)
        raise Unreachable(f"took longer than {timeout_s:g} s, and was killed") from None
    output, errors = (reader.text() for reader in readers)
    _kill(process)  # other processes of its group may still run
    if readers[0].cut:
        raise Unreachable(f"printed more than {limits.AGENT_COMMAND_BYTES_MAX:,} bytes")
    return code, output, " ".join(errors.split())[:200]


class _PipeReader:
    """Reads a pipe to its end in a thread, and stores the beginning."""

    def __init__(self, pipe: IO[bytes], most: int) -> None:
        self.cut = False
        self._pipe, self._most, self._content = pipe, most, bytearray()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def text(self) -> str:
        """Returns the stored text. It does not wait for a pipe that another process keeps open."""
        self._thread.join(1.0)
        return bytes(self._content).decode(errors="replace")

    def _read(self) -> None:
        with self._pipe, suppress(OSError, ValueError):
            while chunk := self._pipe.read1(65_536):  # type: ignore[attr-defined]  # a buffered reader
                space = self._most - len(self._content)
                self._content += chunk[:space]
                self.cut |= len(chunk) > space


def _kill(process: "subprocess.Popen[bytes]") -> None:
    with suppress(OSError):  # it has ended already
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def check_options(options: Options) -> None:
    if not options["run"] or not options["run"][0]:
        raise Refused("[[command]] run is empty", wanted='["/path/of/program", "argument"]')
    if options.get("format", "lines") not in FORMATS:
        raise Refused("[[command]] format is wrong", got=options["format"], wanted=" or ".join(FORMATS))
