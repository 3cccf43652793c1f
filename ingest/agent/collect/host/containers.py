"""Collects containers (``container``) by cgroup v2: Docker, containerd, CRI-O, Podman, LXC and machines of systemd.

It reads only ``/sys/fs/cgroup``, so it needs no daemon and no privileges. The name of its cgroup identifies a
container; Docker's own name is added if its folder is readable (as root). On a host with only cgroup v1 the collector
fails with a message.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ingest.agent.collect.fetch import Unreachable
from ingest.agent.lines import Point
from spm import limits

ROOT = Path("/sys/fs/cgroup")
DOCKER = Path("/var/lib/docker/containers")
_SCOPE = re.compile(
    r"(?:(docker|cri-containerd|crio|libpod|nerdctl)-([0-9a-f]{12,64})\.scope|"
    r"(?:(lxc)\.payload\.([\w.-]+))|(?:(machine)-([\w.\\-]+)\.scope)|([0-9a-f]{64}))"
)
_POD = re.compile(r"pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12})")
_DEPTH_MAX = 6  # kubepods.slice/kubepods-burstable.slice/…-pod….slice/cri-containerd-….scope is four deep
_FOLDERS_MAX = 5_000
_CPU = {
    "usage_usec": "cpu_usec",
    "user_usec": "cpu_user_usec",
    "system_usec": "cpu_system_usec",
    "nr_throttled": "cpu_throttled",
    "throttled_usec": "cpu_throttled_usec",
}
_SINGLE = {"memory.max": "memory_max_bytes", "pids.current": "processes", "pids.max": "processes_max"}


class ContainerCollector:
    """Collects all containers of the host."""

    def __init__(self, root: Path = ROOT, docker: Path = DOCKER) -> None:
        self._root, self._docker = root, docker
        self._names: dict[str, str] = {}

    def __call__(self) -> Sequence[Point]:
        if not is_available(self._root):
            raise Unreachable(f"{self._root} is no cgroup v2: containers cannot be collected here")
        containers = list(find_containers(self._root))[: limits.AGENT_CONTAINERS_MAX]
        self._names = {
            number: name for number, name in self._names.items() if number in {each[2] for each in containers}
        }
        return [point for each in containers if (point := self._point(*each)) is not None]

    def _point(self, path: Path, runtime: str, number: str, pod: str) -> Point | None:
        fields = read_cgroup(path)
        if not fields:  # it ended after the listing
            return None
        labels = {"container": number[:12], "runtime": runtime, "pod": pod, "name": self._name(runtime, number)}
        return Point("container", fields, labels)

    def _name(self, runtime: str, number: str) -> str:
        if runtime != "docker":
            return ""
        if number not in self._names:
            try:
                config = json.loads((self._docker / number / "config.v2.json").read_bytes())
                self._names[number] = str(config.get("Name", "")).lstrip("/")
            except (OSError, ValueError, AttributeError):
                self._names[number] = ""
        return self._names[number]


def is_available(root: Path = ROOT) -> bool:
    """Whether the host has cgroup v2."""
    return (root / "cgroup.controllers").exists()


def find_containers(root: Path) -> Iterator[tuple[Path, str, str, str]]:
    """Yields (folder, runtime, id, pod) of every container at any depth, but nothing inside a container."""
    waiting = [(root, 0)]
    folder_count = 0
    while waiting and folder_count < _FOLDERS_MAX:
        folder, depth = waiting.pop()
        folder_count += 1
        try:
            inner = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
        except OSError:
            continue
        for name in inner:
            scope = _SCOPE.fullmatch(name)
            if scope is None:
                if depth + 1 < _DEPTH_MAX:
                    waiting.append((folder / name, depth + 1))
                continue
            runtime, number = next(
                ((scope[i], scope[i + 1]) for i in (1, 3, 5) if scope[i]), (_parent_runtime(folder), scope[7] or "")
            )
            pod = _POD.search(str(folder))
            yield folder / name, runtime, number, pod[1].replace("_", "-") if pod else ""


def read_cgroup(path: Path) -> Mapping[str, float]:
    """Returns processor time, memory, disks and processes of one cgroup."""
    cpu, memory, events = (_read_pairs(path / name) for name in ("cpu.stat", "memory.stat", "memory.events"))
    fields: dict[str, float] = {ours: cpu[theirs] for theirs, ours in _CPU.items() if theirs in cpu}
    if (used := _read_number(path / "memory.current")) is not None:
        fields |= {"memory_bytes": used, "memory_working_bytes": max(0, used - memory.get("inactive_file", 0))}
    fields |= {f"memory_{name}_bytes": memory[name] for name in ("anon", "file") if name in memory}
    if "oom_kill" in events:
        fields["oom_kills"] = events["oom_kill"]
    for name, field in _SINGLE.items():
        if (value := _read_number(path / name)) is not None:
            fields[field] = value
    return {**fields, **_read_disks(path / "io.stat")}


def _read_disks(path: Path) -> Mapping[str, float]:
    """Returns the sums over all devices of lines such as ``8:0 rbytes=1 wbytes=2 rios=3 wios=4 …``."""
    names = {"rbytes": "read_bytes", "wbytes": "write_bytes", "rios": "reads", "wios": "writes"}
    sums: dict[str, float] = {}
    for line in _read_text(path).splitlines():
        for pair in line.split()[1:]:
            key, _, value = pair.partition("=")
            if key in names and value.isdigit():
                sums[names[key]] = sums.get(names[key], 0) + int(value)
    return sums


def _parent_runtime(folder: Path) -> str:
    return "docker" if folder.name == "docker" else "container"


def _read_pairs(path: Path) -> Mapping[str, int]:
    pairs = (line.split() for line in _read_text(path).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def _read_number(path: Path) -> int | None:
    text = _read_text(path).strip()
    return int(text) if text.isdigit() else None  # ``max`` means no limit


def _read_text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""
