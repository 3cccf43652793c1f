"""Collects counters of each network interface (``net``), except loopback and the container ends of bridges."""

from collections.abc import Sequence

import psutil

from ingest.agent.lines import Point
from spm import limits

_NO_WIRES = ("lo", "veth")


def points() -> Sequence[Point]:
    """Returns one point ``net`` per interface."""
    counters = psutil.net_io_counters(pernic=True)
    names = [name for name in sorted(counters) if not name.startswith(_NO_WIRES)]
    return [_point(name, counters[name]) for name in names[: limits.AGENT_DEVICES_MAX]]


def _point(name: str, counters: object) -> Point:
    attributes = {
        "bytes_recv": "bytes_recv",
        "bytes_sent": "bytes_sent",
        "packets_recv": "packets_recv",
        "packets_sent": "packets_sent",
        "err_in": "errin",
        "err_out": "errout",
        "drop_in": "dropin",
        "drop_out": "dropout",
    }
    return Point("net", {ours: getattr(counters, theirs) for ours, theirs in attributes.items()}, {"interface": name})
