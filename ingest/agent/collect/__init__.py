"""The collectors: each reads one side of the machine, or one service on it, and returns points.

A collector is a callable without arguments. What it remembers between two calls (counters, for percentages) is its own;
it neither knows the wire nor when it is called. Enter by ``standard`` (the machine) and ``KINDS`` (services).
"""

from ingest.agent.collect.base import Collector, Kind
from ingest.agent.collect.host import containers, cpu, disks, load, memory, network, processes
from ingest.agent.collect.services import (
    command,
    elasticsearch,
    jmx,
    nginx,
    postgres,
    prometheus,
    rabbitmq,
    redis,
    solr,
)

SYSTEM = ("cpu", "memory", "load", "disks", "network", "processes", "containers")
KINDS: dict[str, Kind] = {
    module.KIND.name: module.KIND
    for module in (prometheus, jmx, rabbitmq, postgres, redis, nginx, elasticsearch, solr, command)
}


def standard() -> dict[str, Collector]:
    """Every collector of the machine by its name; containers where the system can tell of them."""
    found: dict[str, Collector] = {
        "cpu": cpu.Cpu(),
        "memory": memory.points,
        "load": load.points,
        "disks": disks.points,
        "network": network.points,
        "processes": processes.Processes(),
    }
    if (containers.ROOT / "cgroup.controllers").exists():
        found["containers"] = containers.Containers()
    return found
