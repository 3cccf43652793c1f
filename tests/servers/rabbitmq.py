"""One private RabbitMQ node, run from the programs that Debian's package installs.

Node name, Erlang cookie, data, logs, port and even the port mapper (epmd) are its own, all on 127.0.0.1: it neither
sees nor disturbs a RabbitMQ of the system. The node is the very process that is started (no shell in between), so that
``kill`` is a kill -9 of the broker itself.
"""

import os
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.servers.authority import Signed
from tests.servers.processes import NotReady, Process, answers, kept_ports, wait_ready

READY_S = 240  # of a machine that is busy with much else; as a rule it is ten
COUNTS_EVERY_S = 1  # the messages of each queue; by itself it would every five seconds
READY_LINE = "Server startup complete"
PROGRAMS = Path("/usr/lib/rabbitmq/lib")

CONFIGURATION = """\
listeners.tcp.1 = 127.0.0.1:{amqp}
max_message_size = 67108864
disk_free_limit.absolute = 50MB
vm_memory_high_watermark.absolute = 1GB
raft.wal_max_size_bytes = 32000000
"""


ASKING = """\
auth_backends.1 = internal
auth_backends.2 = http
auth_http.http_method = post
auth_http.user_path = {site}/user
auth_http.vhost_path = {site}/vhost
auth_http.resource_path = {site}/resource
auth_http.topic_path = {site}/topic
"""

OVER_TLS = """\
listeners.ssl.1 = 127.0.0.1:{tls}
ssl_options.cacertfile = {ca}
ssl_options.certfile = {certificate}
ssl_options.keyfile = {key}
"""


@dataclass(frozen=True, slots=True)
class RabbitMQ:
    """One node in ``folder``; with a ``site`` (http://…/broker/SECRET) it asks that about users it does not know.

    With ``management`` it has the interface for programs that watch it.
    """

    folder: Path
    site: str = ""
    signed: Signed | None = None
    management: bool = False

    @property
    def management_url(self) -> str:
        """Where it shows how it does, to the user that every fresh node has."""
        return f"http://127.0.0.1:{self._ports()['management']}"

    @property
    def url(self) -> str:
        """Its address, with the user that every fresh node has."""
        return f"amqp://guest:guest@127.0.0.1:{self._ports()['amqp']}/%2F"

    def url_over_tls(self) -> str:
        """Its address for amqps."""
        assert self.signed is not None, "BUG: a broker without a certificate"
        return f"amqps://guest:guest@127.0.0.1:{self._ports()['tls']}/%2F?ca={self.signed.ca}"

    def url_of(self, user: str, password: str) -> str:
        """Its address for somebody else than its own user."""
        return self.url.replace("guest:guest", f"{user}:{password}")

    def missing(self) -> str | None:
        """Why it cannot run here, or ``None``."""
        if shutil.which("erl") and _programs() is not None:
            return None
        return "RabbitMQ is not installed (Debian: apt-get install rabbitmq-server)"

    def start(self) -> str:
        """Start what does not run, wait until it answers, and say where; raises ``NotReady``."""
        reason = self.missing()
        if reason:
            raise NotReady(reason)
        self._configure()
        ports = self._ports()
        self._mapper.start(["epmd", "-port", str(ports["epmd"]), "-address", "127.0.0.1"], os.environ)
        wait_ready(lambda: answers(ports["epmd"]), [self._mapper], READY_S)
        self._node.start([_tool("rabbitmq-server")], self._environment())
        wait_ready(self._ready, [self._mapper, self._node], READY_S)
        return self.url

    def stop(self) -> None:
        """End the node, then its port mapper."""
        self._node.stop(60)
        self._mapper.stop(10)

    def kill(self) -> None:
        """Kill -9 of the broker."""
        self._node.kill()

    def discard(self) -> None:
        """End it for good: nobody will read its data, so nothing is written out."""
        self._node.kill()
        self._mapper.kill()

    def alive(self) -> bool:
        """Whether the broker runs."""
        return self._node.alive()

    def process_id(self) -> int:
        """The broker's process; raises ``NotReady`` when there is none."""
        pid = self._node.pid()
        if pid is None:
            raise NotReady("RabbitMQ does not run")
        return pid

    def new_vhost(self, name: str) -> str:
        """The address of an empty virtual host, made for the caller."""
        call = f'rabbit_vhost:add(<<"{name}">>, <<"tests">>)'
        everything = ", ".join(['<<".*">>'] * 3)
        allowed = f'rabbit_auth_backend_internal:set_permissions(<<"guest">>, <<"{name}">>, {everything}, <<"tests">>)'
        self.control("eval", f"{call}, {allowed}.")  # in one go: each start of rabbitmqctl takes a second
        return self.url.replace("%2F", name)

    def messages(self, vhost: str = "/") -> int:
        """How many messages the queues of a virtual host hold, delivered ones included."""
        listed = self.control("list_queues", "--quiet", "--no-table-headers", "-p", vhost, "messages")
        return sum(int(line) for line in listed.split())

    def purge(self, vhost: str, queues: Iterable[str]) -> None:
        """Empty queues; what is delivered and not acknowledged stays."""
        for name in queues:
            self.control("purge_queue", "-p", vhost, name)

    def control(self, *words: str) -> str:
        """What ``rabbitmqctl`` answers to ``words``."""
        done = subprocess.run(
            [str(_tool("rabbitmqctl")), "-n", self._name, *words],
            env=self._environment(),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode:
            raise NotReady(f"rabbitmqctl {' '.join(words)}: {done.stderr or done.stdout}")
        return done.stdout

    @property
    def _name(self) -> str:
        return f"spm-{self._ports()['amqp']}@localhost"

    @property
    def _node(self) -> Process:
        return Process("rabbitmq", self.folder)

    @property
    def _mapper(self) -> Process:
        return Process("epmd", self.folder)

    def _ready(self) -> bool:
        return READY_LINE in self._log.read_text(errors="replace") if self._log.exists() else False

    @property
    def _log(self) -> Path:
        return self.folder / "log" / f"{self._name}.log"

    def _ports(self) -> dict[str, int]:
        return kept_ports(self.folder, ("amqp", "epmd", "distribution", "tls", "management"))

    def _configure(self) -> None:
        (self.folder / "log").mkdir(parents=True, exist_ok=True)
        if not self.alive():
            self._log.unlink(missing_ok=True)
        plugins = ["rabbitmq_consistent_hash_exchange"]
        text = CONFIGURATION.format(**self._ports())
        if self.site:
            plugins.append("rabbitmq_auth_backend_http")
            text += ASKING.format(site=self.site)
        if self.management:
            plugins.append("rabbitmq_management")
            text += f"management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {self._ports()['management']}\n"
        if self.signed is not None:
            s = self.signed
            text += OVER_TLS.format(**self._ports(), ca=s.ca, certificate=s.certificate, key=s.key)
        (self.folder / "rabbitmq.conf").write_text(text)
        (self.folder / "plugins").write_text(f"[{','.join(plugins)}].\n")

    def _environment(self) -> dict[str, str]:
        ports = self._ports()
        loopback = "-kernel inet_dist_use_interface {127,0,0,1}"
        return {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "HOME": str(self.folder),  # the cookie's place
            "ERL_EPMD_PORT": str(ports["epmd"]),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": self._name,
            "RABBITMQ_DIST_PORT": str(ports["distribution"]),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_LOG_BASE": str(self.folder / "log"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(self.folder / "generated"),
            "RABBITMQ_PID_FILE": str(self.folder / "node.pid"),
            "RABBITMQ_ALLOW_INPUT": "1",  # the script then becomes the node instead of starting it as a child,
            "RABBITMQ_SERVER_START_ARGS": "-noinput",  # and this takes back what the line above allows
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"{loopback} -rabbit quorum_tick_interval {1_000 * COUNTS_EVERY_S}",
            "RABBITMQ_CTL_ERL_ARGS": loopback,
        }


def _programs() -> Path | None:
    folders = sorted(PROGRAMS.glob("rabbitmq_server-*/sbin"))
    return folders[-1] if folders else None


def _tool(name: str) -> Path:
    programs = _programs()
    assert programs is not None, "BUG: asked for a program of a RabbitMQ that is not installed"
    return programs / name
