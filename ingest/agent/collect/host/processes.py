"""How many processes there are, and in what state (``processes``); which programs use most (``program``).

On Linux one small file per process is read directly: psutil's way costs ten times as much, which on a machine with
thousands of processes would alone use up the agent's share of CPU. Elsewhere psutil answers, without programs. A
program is all processes of one name; those that used most processor time since the last look are told, and those that
hold most memory, ``AGENT_PROGRAMS_MAX`` of each. A process that ended takes its last moments with it.
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
class Seen:
    """One process. ``ticks``: of processor time since it began."""

    number: int
    name: str
    state: str
    threads: int
    ticks: int = 0
    pages: int = 0


class Processes:
    """Counts at each call; usage of programs is the difference to the call before."""

    def __init__(self) -> None:
        self._direct = os.path.exists("/proc/self/stat")
        self._before: dict[int, int] = {}

    def __call__(self) -> Sequence[Point]:
        if not self._direct:
            return [count(_from_psutil())]
        found = list(from_proc())
        points = [count((each.state, each.threads) for each in found), *programs(found, self._before)]
        self._before = {each.number: each.ticks for each in found}
        return points


def programs(found: Iterable[Seen], before: Mapping[int, int]) -> Sequence[Point]:
    """The programs that use most; a process that was not there before counts with all it has used."""
    number: Counter[str] = Counter()
    ticks: Counter[str] = Counter()
    pages: Counter[str] = Counter()
    for each in found:
        number[each.name] += 1
        pages[each.name] += each.pages
        ticks[each.name] += max(0, each.ticks - before.get(each.number, 0 if before else each.ticks))
    most = limits.AGENT_PROGRAMS_MAX
    busy = [name for name, used in ticks.most_common(most) if used]
    named = dict.fromkeys([*busy, *(name for name, held in pages.most_common(most) if held)])
    return [_program(name, number[name], ticks[name], pages[name]) for name in named]


def _program(name: str, processes: int, ticks: int, pages: int) -> Point:
    used = round(ticks / _TICKS, 3)
    fields = {"processes": processes, "cpu_seconds_used": used, "rss_bytes": pages * _PAGE_BYTES}
    return Point("program", fields, {"program": name})


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


def from_proc() -> Iterable[Seen]:
    """Every process, from one read each."""
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb", buffering=0) as file:
                text = file.read(1_024)
        except OSError:  # gone since the listing
            continue
        # The name stands in brackets and may hold brackets and blanks itself: fields count from the last bracket.
        end = text.rfind(b")")
        fields = text[end + 2 :].split()
        if len(fields) > 21:
            program = text[text.find(b"(") + 1 : end].decode(errors="replace")
            ticks, pages = int(fields[11]) + int(fields[12]), int(fields[21])
            # Workers of the kernel have a name each, such as kworker/1:2-events: they are one program.
            plain = program if pages else program.partition("/")[0]
            yield Seen(int(name), plain, fields[0].decode(), int(fields[17]), ticks, pages)


def _from_psutil() -> Iterable[tuple[str, int]]:
    for process in psutil.process_iter(["status", "num_threads"]):
        yield _PSUTIL_KINDS.get(process.info["status"], "T"), process.info["num_threads"] or 0
