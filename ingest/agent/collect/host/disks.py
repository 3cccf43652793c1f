"""Collects file systems (``disk``, by path) and block devices (``diskio``, by name).

A device mounted several times (bind mounts, containers) is reported once, with its shortest path. Network and virtual
file systems are left out by psutil (``all=False``): a request to a hung one would block the agent. Used percent is that
of ``df``: of the space for users.
"""

import os
from collections.abc import Iterable, Mapping, Sequence

import psutil

from ingest.agent.lines import Point
from spm import limits

_NO_DISKS = ("loop", "ram", "zram", "fd", "sr")


def points() -> Sequence[Point]:
    """Returns one point ``disk`` per file system, and one point ``diskio`` per device."""
    mounts = choose_mounts((part.device, part.mountpoint) for part in psutil.disk_partitions(all=False))
    counters = psutil.disk_io_counters(perdisk=True) or {}
    spaces = [point for device, path in mounts.items() if (point := _disk_point(device, path))]
    names = [name for name in sorted(counters) if not name.startswith(_NO_DISKS)]
    return spaces + [_diskio_point(name, counters[name]) for name in names[: limits.AGENT_DEVICES_MAX]]


def choose_mounts(mounts: Iterable[tuple[str, str]]) -> Mapping[str, str]:
    """Returns the shortest path of each device; the root file system is always included."""
    paths: dict[str, str] = {}
    for device, path in sorted(mounts, key=lambda mount: (len(mount[1]), mount)):
        if os.path.isdir(path):
            paths.setdefault(device, path)
    if "/" not in paths.values():
        paths = {"rootfs": "/", **paths}
    return dict(list(paths.items())[: limits.AGENT_DEVICES_MAX])


def _disk_point(device: str, path: str) -> Point | None:
    try:
        space = os.statvfs(path)
    except OSError:  # unmounted meanwhile, or not permitted
        return None
    used, free = (space.f_blocks - space.f_bfree) * space.f_frsize, space.f_bavail * space.f_frsize
    if not used + free:
        return None
    fields = {"total": space.f_blocks * space.f_frsize, "free": free, "used": used, "inodes_total": space.f_files}
    fields |= {"inodes_free": space.f_favail}
    percent = round(100 * used / (used + free), 3)
    return Point("disk", {**fields, "used_percent": percent}, {"path": path, "device": device.removeprefix("/dev/")})


def _diskio_point(name: str, counters: object) -> Point:
    attributes = {
        "read_bytes": "read_bytes",
        "write_bytes": "write_bytes",
        "reads": "read_count",
        "writes": "write_count",
        "read_time": "read_time",
        "write_time": "write_time",
        "io_time": "busy_time",
    }
    fields = {ours: getattr(counters, theirs) for ours, theirs in attributes.items() if hasattr(counters, theirs)}
    return Point("diskio", fields, {"name": name})
