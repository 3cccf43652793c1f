"""Discovers services on this host that the agent can watch: by program names and usual ports, then by a request.

1. ``listeners`` lists the listening TCP sockets and their programs (programs of other users only as root).
2. ``HINTS`` maps programs and ports to kinds of service and the addresses to try. Without a hint the agent never
   connects to a socket.
3. Each candidate gets a short request; only an expected answer makes it a target.

A service that needs a password (PostgreSQL, RabbitMQ) is listed with the lines for the configuration file.
``discover = false`` turns discovery off; ``off = ["redis"]`` excludes a kind; configured services are not listed again.
Enter by ``discover_services``.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import psutil

from ingest.agent.collect.base import Collector
from ingest.agent.collect.fetch import Unreachable
from ingest.agent.collect.services import elasticsearch, jmx, nginx, prometheus, redis, solr
from ingest.agent.settings.config import Target
from spm import limits

_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


@dataclass(frozen=True, slots=True)
class Listener:
    """A listening socket, and the name of its program; empty if this user may not see it."""

    address: str
    port: int
    program: str = ""

    @property
    def place(self) -> str:
        """The address ``host:port`` to reach it from this host."""
        host = _ANY.get(self.address, self.address)
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Hint:
    """The kind of service that programs of these names, or on these ports, probably are, and how to verify it."""

    kind: str
    programs: tuple[str, ...]
    ports: tuple[int, ...]
    option: str  # of the configuration, for the address
    forms: tuple[str, ...]  # of the address
    make: Callable[[dict[str, object]], Collector] | None = None
    advice: str = ""

    def fits(self, listener: Listener) -> bool:
        """Whether the hint matches: by the program's name if it is known, else by the port."""
        program = listener.program
        if program and self.programs:
            exporter = self.kind == "prometheus" and program.endswith("_exporter")
            return exporter or program.startswith(self.programs)
        return listener.port in self.ports


HINTS = (
    Hint(
        "redis",
        ("redis-server", "valkey-server", "keydb-server"),
        (6379,),
        "address",
        ("{place}",),
        redis.RedisCollector,
    ),
    Hint(
        "nginx",
        ("nginx", "openresty"),
        (80, 8080),
        "url",
        tuple(f"http://{{place}}/{page}" for page in ("nginx_status", "stub_status", "basic_status")),
        nginx.NginxCollector,
    ),
    Hint(
        "jmx", ("java",), (16010, 16030, 9870, 9864, 8088, 8042, 8480), "url", ("http://{place}/jmx",), jmx.JmxCollector
    ),
    Hint("elasticsearch", ("java",), (9200,), "url", ("http://{place}",), elasticsearch.ElasticsearchCollector),
    Hint("solr", ("java",), (8983,), "url", ("http://{place}/solr",), solr.SolrCollector),
    Hint(
        "prometheus",
        ("node_exporter", "prometheus", "victoria-metric", "grafana", "etcd", "caddy", "traefik"),
        (9090, 9100, 9104, 9113, 9115, 9121, 9187, 9216, 9256),
        "url",
        ("http://{place}/metrics",),
        prometheus.ExporterCollector,
    ),
    Hint(
        "postgres",
        ("postgres",),
        (5432,),
        "dsn",
        ("host=127.0.0.1 port={port} dbname=postgres",),
        None,
        "needs a login: create role spm_agent login password '…'; grant pg_monitor to spm_agent;",
    ),
    Hint("rabbitmq", (), (15672,), "url", ("http://{place}",), None, "needs a user with the tag monitoring"),
)
_JAVA_PORTS = {"jmx": (16010, 16030, 9870, 9864, 8088, 8042, 8480), "elasticsearch": (9200,), "solr": (8983,)}


@dataclass(frozen=True, slots=True)
class DiscoveredService:
    """A service on this host: a target that answered, or advice about what it needs."""

    target: Target
    program: str
    advice: str = ""


def listeners() -> Sequence[Listener]:
    """Returns every listening TCP port once; of several sockets on one port, that which loopback reaches."""
    names: dict[int, str] = {}
    sockets = []
    for each in psutil.net_connections(kind="tcp"):
        if each.status == psutil.CONN_LISTEN and each.laddr:
            if each.pid and each.pid not in names:
                names[each.pid] = _program(each.pid)
            sockets.append(Listener(each.laddr.ip, each.laddr.port, names.get(each.pid or 0, "")))
    sockets.sort(key=lambda one: one.address in ("127.0.0.1", "0.0.0.0"))
    by_port = {each.port: each for each in sockets}
    return sorted(by_port.values(), key=lambda one: one.port)


def candidates(
    listening: Iterable[Listener], *, off: frozenset[str], known: Iterable[Target]
) -> list[tuple[Hint, Listener]]:
    """Returns the sockets to verify, with their hints. Pure. ``known``: targets that are already watched."""
    places = {str(value) for target in known for value in target.options.values() if isinstance(value, str)}
    matches = []
    for listener in listening:
        if any(f":{listener.port}" in place or f"port={listener.port}" in place for place in places):
            continue
        for hint in HINTS:
            ports = _JAVA_PORTS.get(hint.kind)
            if hint.kind not in off and hint.fits(listener) and (ports is None or listener.port in ports):
                matches.append((hint, listener))
    return matches[: limits.AGENT_TARGETS_MAX]


def discover_services(*, off: frozenset[str] = frozenset(), known: Sequence[Target] = ()) -> list[DiscoveredService]:
    """Returns the services that answered as expected, and those that need a login first."""
    services = []
    for hint, listener in candidates(listeners(), off=off, known=known):
        target = probe(hint, listener)
        if target is not None and target.name not in off:
            services.append(DiscoveredService(target, listener.program, hint.advice))
    return services


def probe(hint: Hint, listener: Listener) -> Target | None:
    """Returns the target if the service answers as the hint expects, else None."""
    for form in hint.forms:
        options: dict[str, object] = {hint.option: form.format(place=listener.place, port=listener.port)}
        if hint.make is None:
            return Target(hint.kind, options)
        try:
            points = hint.make({**options, "timeout_s": limits.AGENT_PROBE_S})()
        except (Unreachable, ValueError, KeyError, TypeError, AttributeError):  # it is another service
            continue
        if points:
            return Target(hint.kind, options)
    return None


def toml_lines(service: DiscoveredService) -> str:
    """Returns the lines of the configuration file for a service."""
    options = "".join(f'{name} = "{value}"\n' for name, value in service.target.options.items())
    return f"[[{service.target.kind}]]\n{options}"


def _program(pid: int) -> str:
    try:
        return str(psutil.Process(pid).name())
    except psutil.Error:
        return ""
