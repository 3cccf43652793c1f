"""How many processes there are, and in what state (``processes``).

On Linux one small file per process is read directly: psutil's way costs ten times as much, which on a machine with
thousands of processes would alone use up the agent's share of CPU. Elsewhere psutil answers.
"""

import os
from collections import Counter
from collections.abc import Iterable, Sequence

import psutil

from ingest.agent.lines import Point

_KINDS = {"R": "running", "S": "sleeping", "I": "sleeping", "D": "blocked", "Z": "zombies", "X": "zombies"}
_PSUTIL_KINDS = {
    psutil.STATUS_RUNNING: "R",
    psutil.STATUS_SLEEPING: "S",
    psutil.STATUS_IDLE: "I",
    psutil.STATUS_DISK_SLEEP: "D",
    psutil.STATUS_ZOMBIE: "Z",
}


def points() -> Sequence[Point]:
    """One point ``processes``."""
    return [count(_from_proc() if os.path.exists("/proc/self/stat") else _from_psutil())]


def count(processes: Iterable[tuple[str, int]]) -> Point:
    """Counts of (state letter, threads) pairs; states without a name of their own are ``stopped``."""
    kinds: Counter[str] = Counter()
    total = threads = 0
    for state, its_threads in processes:
        total += 1
        threads += its_threads
        kinds[_KINDS.get(state, "stopped")] += 1
    named = {kind: kinds[kind] for kind in ("running", "sleeping", "blocked", "zombies", "stopped")}
    return Point("processes", {"total": total, "threads": threads, **named})


def _from_proc() -> Iterable[tuple[str, int]]:
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb", buffering=0) as file:
                text = file.read(1_024)
        except OSError:  # gone since the listing
            continue
        # The name stands in brackets and may hold brackets and blanks itself: fields count from the last bracket.
        fields = text[text.rfind(b")") + 2 :].split()
        if len(fields) > 17:
            yield fields[0].decode(), int(fields[17])


def _from_psutil() -> Iterable[tuple[str, int]]:
    for process in psutil.process_iter(["status", "num_threads"]):
        yield _PSUTIL_KINDS.get(process.info["status"], "T"), process.info["num_threads"] or 0
