"""The registry of collectors: one line for each part of the machine, and one for each kind of service.

A new collector is one module with a callable that returns points, and one line here. A line of a kind of service also
lists the options of its table in the configuration file (``[[redis]]``). Enter by ``host_collectors`` and ``KINDS``.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ingest.agent.collect.base import Collector, ServiceKind
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


@dataclass(frozen=True, slots=True)
class HostCollector:
    """The collector of one part of the machine. ``is_available``: whether this machine has that part."""

    name: str
    make: Callable[[], Collector]
    is_available: Callable[[], bool] = lambda: True


HOST_COLLECTORS: tuple[HostCollector, ...] = (
    HostCollector("cpu", cpu.CpuCollector),
    HostCollector("memory", lambda: memory.points),
    HostCollector("load", lambda: load.points),
    HostCollector("disks", lambda: disks.points),
    HostCollector("network", lambda: network.points),
    HostCollector("processes", processes.ProcessCollector),
    HostCollector("containers", containers.ContainerCollector, containers.is_available),
)
SERVICE_KINDS: tuple[ServiceKind, ...] = (
    ServiceKind("prometheus", prometheus.ExporterCollector, {"url": str, "keep": list, "drop": list}, ("url",)),
    ServiceKind("jmx", jmx.JmxCollector, {"url": str, "beans": list}, ("url",)),
    ServiceKind("rabbitmq", rabbitmq.RabbitMQCollector, {"url": str}, ("url",)),
    ServiceKind("postgres", postgres.PostgresCollector, {"dsn": str}, ("dsn",), "name"),
    ServiceKind("redis", redis.RedisCollector, {"address": str, "tls": bool}, place="address"),
    ServiceKind("nginx", nginx.NginxCollector, {"url": str}, ("url",)),
    ServiceKind("elasticsearch", elasticsearch.ElasticsearchCollector, {"url": str}, ("url",)),
    ServiceKind("solr", solr.SolrCollector, {"url": str}, ("url",)),
    ServiceKind("command", command.CommandCollector, command.OPTIONS, ("name", "run"), "name", command.check_options),
)
SYSTEM = tuple(one.name for one in HOST_COLLECTORS)
KINDS: dict[str, ServiceKind] = {kind.name: kind for kind in SERVICE_KINDS}


def host_collectors() -> dict[str, Collector]:
    """Returns a new collector for every part of the machine that is available, by name."""
    return {one.name: one.make() for one in HOST_COLLECTORS if one.is_available()}
