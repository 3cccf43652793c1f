"""What listens on this host that the agent could watch: by the names of programs and their usual ports, then by asking.

1. ``listeners`` lists the listening TCP sockets and the programs behind them (those of others only as root).
2. ``HINTS`` says what such a program or port may be; whatever no hint names is never spoken to.
3. Each guess is asked what it is, briefly: only a right answer makes it a target.

What needs a password (PostgreSQL, RabbitMQ) is named with the lines for the configuration file instead. ``discover =
false`` looks at nothing; ``off = ["redis"]`` leaves a kind out; what is configured already is not found again.
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
    """A listening socket, and the name of its program, empty if that is nobody's business."""

    address: str
    port: int
    program: str = ""

    @property
    def place(self) -> str:
        """``host:port`` to reach it from here."""
        host = _ANY.get(self.address, self.address)
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Hint:
    """What a program of one of these names, or on one of these ports, may be; ``options`` of it; how it is asked."""

    kind: str
    programs: tuple[str, ...]
    ports: tuple[int, ...]
    option: str
    forms: tuple[str, ...]
    make: Callable[[dict[str, object]], Collector] | None = None
    advice: str = ""

    def fits(self, listener: Listener) -> bool:
        """By the program's name where it is known; else by the port."""
        program = listener.program
        if program and self.programs:
            exporter = self.kind == "prometheus" and program.endswith("_exporter")
            return exporter or program.startswith(self.programs)
        return listener.port in self.ports


HINTS = (
    Hint("redis", ("redis-server", "valkey-server", "keydb-server"), (6379,), "address", ("{place}",), redis.Redis),
    Hint(
        "nginx",
        ("nginx", "openresty"),
        (80, 8080),
        "url",
        tuple(f"http://{{place}}/{page}" for page in ("nginx_status", "stub_status", "basic_status")),
        nginx.Nginx,
    ),
    Hint("jmx", ("java",), (16010, 16030, 9870, 9864, 8088, 8042, 8480), "url", ("http://{place}/jmx",), jmx.Jmx),
    Hint("elasticsearch", ("java",), (9200,), "url", ("http://{place}",), elasticsearch.Elasticsearch),
    Hint("solr", ("java",), (8983,), "url", ("http://{place}/solr",), solr.Solr),
    Hint(
        "prometheus",
        ("node_exporter", "prometheus", "victoria-metric", "grafana", "etcd", "caddy", "traefik"),
        (9090, 9100, 9104, 9113, 9115, 9121, 9187, 9216, 9256),
        "url",
        ("http://{place}/metrics",),
        prometheus.Exporter,
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
class Found:
    """Something that listens: a target that answered, or advice what it needs."""

    target: Target
    program: str
    advice: str = ""


def listeners() -> Sequence[Listener]:
    """Every listening TCP socket once, those on loopback first."""
    names: dict[int, str] = {}
    found = []
    for each in psutil.net_connections(kind="tcp"):
        if each.status == psutil.CONN_LISTEN and each.laddr:
            if each.pid and each.pid not in names:
                names[each.pid] = _program(each.pid)
            found.append(Listener(each.laddr.ip, each.laddr.port, names.get(each.pid or 0, "")))
    found.sort(key=lambda one: one.address in ("127.0.0.1", "0.0.0.0"))
    first = {each.port: each for each in found}
    return sorted(first.values(), key=lambda one: one.port)


def guesses(
    listening: Iterable[Listener], *, off: frozenset[str], known: Iterable[Target]
) -> list[tuple[Hint, Listener]]:
    """What to ask. Pure. ``known``: what is watched already, and not to be found again."""
    places = {str(value) for target in known for value in target.options.values() if isinstance(value, str)}
    found = []
    for listener in listening:
        if any(f":{listener.port}" in place or f"port={listener.port}" in place for place in places):
            continue
        for hint in HINTS:
            ports = _JAVA_PORTS.get(hint.kind)
            if hint.kind not in off and hint.fits(listener) and (ports is None or listener.port in ports):
                found.append((hint, listener))
    return found[: limits.AGENT_TARGETS_MAX]


def look(*, off: frozenset[str] = frozenset(), known: Sequence[Target] = ()) -> list[Found]:
    """What is there: guesses that answered as they should, and those that need something first."""
    found = []
    for hint, listener in guesses(listeners(), off=off, known=known):
        target = ask(hint, listener)
        if target is not None and target.name not in off:
            found.append(Found(target, listener.program, hint.advice))
    return found


def ask(hint: Hint, listener: Listener) -> Target | None:
    """The target, if what listens answers as the hint says."""
    for form in hint.forms:
        options: dict[str, object] = {hint.option: form.format(place=listener.place, port=listener.port)}
        if hint.make is None:
            return Target(hint.kind, options)
        try:
            points = hint.make({**options, "timeout_s": limits.AGENT_PROBE_S})()
        except (Unreachable, ValueError, KeyError, TypeError, AttributeError):  # it is something else
            continue
        if points:
            return Target(hint.kind, options)
    return None


def toml(found: Found) -> str:
    """The lines of the configuration file for it."""
    options = "".join(f'{name} = "{value}"\n' for name, value in found.target.options.items())
    return f"[[{found.target.kind}]]\n{options}"


def _program(pid: int) -> str:
    try:
        return str(psutil.Process(pid).name())
    except psutil.Error:
        return ""
