"""The collectors: each reads one side of the machine and returns points.

A collector is a callable without arguments. What it remembers between two calls (counters, for percentages) is its own;
it neither knows the time nor the wire. Enter by ``standard``.
"""

from collections.abc import Callable, Sequence

from ingest.agent.collect import cpu, disks, load, memory, network, processes
from ingest.agent.lines import Point

Collector = Callable[[], Sequence[Point]]


def standard() -> dict[str, Collector]:
    """Every collector of the machine by its name, in the order of its lines."""
    return {
        "cpu": cpu.Cpu(),
        "memory": memory.points,
        "load": load.points,
        "disks": disks.points,
        "network": network.points,
        "processes": processes.points,
    }
