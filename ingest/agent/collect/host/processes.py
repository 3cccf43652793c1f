"""Collects the number of processes per state (``processes``), and the programs that use most (``program``).

On Linux it reads one small file per process: psutil costs ten times as much, which with thousands of processes would
exceed the agent's share of CPU. On other systems psutil gives the counts, without programs. A program is all processes
of one name. The ``AGENT_PROGRAMS_MAX`` programs with most processor time since the last collection are reported, and as
many with most memory. The time of a process after the last collection before its end is lost.
"""

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import psutil

from ingest.agent.lines import Point
from spm import limits

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_KINDS = {"R": "running", "S": "sleeping", "I": "sleeping", "D": "blocked", "Z": "zombies", "X": "zombies"}
_PSUTIL_KINDS = {
    psutil.STATUS_RUNNING: "R",
    psutil.STATUS_SLEEPING: "S",
    psutil.STATUS_IDLE: "I",
    psutil.STATUS_DISK_SLEEP: "D",
    psutil.STATUS_ZOMBIE: "Z",
}


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """One process. ``ticks``: its processor time since its start."""

    number: int
    name: str
    state: str
    threads: int
    ticks: int = 0
    pages: int = 0


class ProcessCollector:
    """Counts processes at each call; the usage of programs is the difference from the call before."""

    def __init__(self) -> None:
        self._direct = os.path.exists("/proc/self/stat")
        self._before: dict[int, int] = {}

    def __call__(self) -> Sequence[Point]:
        if not self._direct:
            return [count_states(_read_psutil())]
        processes = list(read_proc())
        points = [
            count_states((each.state, each.threads) for each in processes),
            *program_points(processes, self._before),
        ]
        self._before = {each.number: each.ticks for each in processes}
        return points


def program_points(processes: Iterable[ProcessStat], before: Mapping[int, int]) -> Sequence[Point]:
    """Returns the programs that use most; a new process counts with all the time that it has used."""
    number: Counter[str] = Counter()
    ticks: Counter[str] = Counter()
    pages: Counter[str] = Counter()
    for each in processes:
        number[each.name] += 1
        pages[each.name] += each.pages
        ticks[each.name] += max(0, each.ticks - before.get(each.number, 0 if before else each.ticks))
    most = limits.AGENT_PROGRAMS_MAX
    busy = [name for name, used in ticks.most_common(most) if used]
    named = dict.fromkeys([*busy, *(name for name, page_count in pages.most_common(most) if page_count)])
    return [_program(name, number[name], ticks[name], pages[name]) for name in named]


def _program(name: str, processes: int, ticks: int, pages: int) -> Point:
    used = round(ticks / _TICKS, 3)
    fields = {"processes": processes, "cpu_seconds_used": used, "rss_bytes": pages * _PAGE_BYTES}
    return Point("program", fields, {"program": name})


def count_states(processes: Iterable[tuple[str, int]]) -> Point:
    """Returns the counts of (state letter, threads) pairs; a state without a name counts as ``stopped``."""
    kinds: Counter[str] = Counter()
    total = threads = 0
    for state, its_threads in processes:
        total += 1
        threads += its_threads
        kinds[_KINDS.get(state, "stopped")] += 1
    named = {kind: kinds[kind] for kind in ("running", "sleeping", "blocked", "zombies", "stopped")}
    return Point("processes", {"total": total, "threads": threads, **named})


def read_proc() -> Iterable[ProcessStat]:
    """Yields every process; it needs one read for each."""
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb", buffering=0) as file:
                text = file.read(1_024)
        except OSError:  # the process ended after the listing
            continue
        # The name is in brackets, and may contain brackets and blanks: the other fields follow the last bracket.
        end = text.rfind(b")")
        fields = text[end + 2 :].split()
        if len(fields) > 21:
            program = text[text.find(b"(") + 1 : end].decode(errors="replace")
            ticks, pages = int(fields[11]) + int(fields[12]), int(fields[21])
            # Kernel workers have different names, such as kworker/1:2-events: they are one program.
            plain = program if pages else program.partition("/")[0]
            yield ProcessStat(int(name), plain, fields[0].decode(), int(fields[17]), ticks, pages)


def _read_psutil() -> Iterable[tuple[str, int]]:
    for process in psutil.process_iter(["status", "num_threads"]):
        yield _PSUTIL_KINDS.get(process.info["status"], "T"), process.info["num_threads"] or 0
