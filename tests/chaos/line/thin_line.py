"""The thin line of the full stack: a publisher, RabbitMQ, a Celery worker in a process of its own, and a store.

``Line.publish`` is an agent that never gives up; ``Line.start_worker`` and ``kill_worker`` are what chaos needs;
``Line.drain`` waits until every message is stored and acknowledged.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ingest.accept.stamper import Stamper, take_process
from ingest.protocols.influx import reader as influx_reader
from ingest.transport.amqp import AmqpTransport
from ingest.transport.topology import Address
from spm.clock import SystemClock
from spm.errors import QueueUnavailable
from spm.store.backends import open_backend
from spm.store.backends.base import Backend
from spm.wire import Envelope
from tests.chaos.line.nursery import Nursery
from tests.servers.migrated import place_migrated
from tests.servers.processes import Process, answers, free_ports, wait_ready, wait_until
from tests.servers.rabbitmq import COUNTS_EVERY_S, RabbitMQ
from tests.support.stored import stamps

ROOT = Path(__file__).resolve().parents[3]
APP = 1
SENDERS = 4
GIVE_UP_S = 240
WORKER = ("spm.worker", "--concurrency", "1")
WEB = (
    "--worker-class",
    "spm.web.loop_worker.LoopWorker",
    "--workers",
    "1",
    "--no-control-socket",
)


@dataclass(slots=True)
class Line:
    """One line; everything it writes is under ``folder`` and in its own tables and virtual host."""

    folder: Path
    store_url: str
    amqp_url: str
    sent: list[Envelope] = field(default_factory=list, repr=False)  # a failure that shows it would never end
    resent: int = 0
    stored_at_kill: int = 0
    workers: int = 0
    step: str = "ingest.worker.connections:ConsumerStep"  # what a worker consumes with
    port: int = field(default_factory=lambda: free_ports(1)[0])
    certificate: tuple[Path, Path] | None = None  # (certificate, key): the web answers over TLS
    backend: Backend = field(init=False)
    transport: AmqpTransport = field(init=False)
    acceptor: Stamper = field(init=False)
    nurseries: list[Nursery] = field(default_factory=list)  # one for each environment; the last is in use

    def __post_init__(self) -> None:
        self.backend = open_backend(self.store_url)
        self.transport = AmqpTransport(Address.parse(self.amqp_url))
        self.acceptor = Stamper(take_process(self.backend), SystemClock())

    def close(self) -> None:
        """Stop what runs."""
        self.transport.close()
        self.web.stop(30)
        for number in range(1, self.workers + 1):
            self.worker(number).stop(30)
        for nursery in self.nurseries:
            nursery.close()
        self.backend.close()

    def accept(self, bodies: Sequence[bytes]) -> list[Envelope]:
        """Bodies of line protocol (ms) as stamped messages, each from a source of its own number modulo 20."""
        return [self._accept(number, body) for number, body in enumerate(bodies, start=len(self.sent))]

    def _accept(self, number: int, body: bytes) -> Envelope:
        return self.accepted(body, source=f"host{number % 20}", message_id=number.to_bytes(16, "big"))

    def accepted(self, body: bytes, *, source: str, message_id: bytes) -> Envelope:
        """One body of line protocol (ms) as a stamped message."""
        parsed = influx_reader.parse(body, now_ms=SystemClock().now_ms(), precision="ms")
        assert not parsed.rejected, parsed.rejections[:3]
        return self.acceptor.stamp_message(app=APP, source=source, parsed=parsed, message_id=message_id)

    def restamped(self, envelope: Envelope) -> Envelope:
        """The same message, accepted here and now."""
        return replace(envelope, stamp=self.acceptor.next_stamp())

    def publish(self, envelopes: Sequence[Envelope]) -> None:
        """Every message confirmed, sent again until it is; by several threads."""
        threads = [threading.Thread(target=self._publish, args=(envelopes[n::SENDERS],)) for n in range(SENDERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.sent.extend(envelopes)

    def publish_in_order(self, envelopes: Sequence[Envelope], pause_s: float) -> None:
        """One after the other, as one source does."""
        for envelope in envelopes:
            self._publish([envelope])
            time.sleep(pause_s)

    def _publish(self, envelopes: Sequence[Envelope]) -> None:
        for envelope in envelopes:
            assert wait_until(lambda e=envelope: self._confirmed(e), GIVE_UP_S), "never confirmed"  # type: ignore[misc]

    def _confirmed(self, envelope: Envelope) -> bool:
        try:
            self.transport.publish(envelope, 10)
        except QueueUnavailable:
            self.resent += 1
            return False
        return True

    def start_worker(self) -> Process:
        """One more Celery worker."""
        self.workers += 1
        process = self.worker(self.workers)
        self._nursery().fork(process, WORKER, self.folder)
        return process

    def start_worker_from_nothing(self) -> Process:
        """One more, as a supervisor starts it."""
        self.workers += 1
        process = self.worker(self.workers)
        process.start([sys.executable, "-m", *WORKER], self._environment())
        return process

    @property
    def web(self) -> Process:
        """The web server."""
        return Process("web", self.folder)

    def start_web(self) -> str:
        """The web server, answering; its address."""
        self._nursery().fork(self.web, self._web_arguments(), self.folder)
        return self._answering()

    def start_web_from_nothing(self) -> str:
        """The same, as a supervisor starts it."""
        self.web.start([sys.executable, "-m", *self._web_arguments()], self._environment())
        return self._answering()

    def _answering(self) -> str:
        wait_ready(lambda: answers(self.port), [self.web], GIVE_UP_S)
        return f"{'http' if self.certificate is None else 'https'}://127.0.0.1:{self.port}"

    def _web_arguments(self) -> list[str | Path]:
        tls: list[str | Path] = []
        if self.certificate is not None:
            tls = ["--certfile", self.certificate[0], "--keyfile", self.certificate[1]]
        return ["gunicorn", "spm.web.asgi:open_dispatcher", "--bind", f"127.0.0.1:{self.port}", *WEB, *tls]

    def token(self) -> str:
        """A database with the first app, whose number is ours, and a token of it."""
        self.migrate()
        return str(json.loads(self.manage("bootstrap", "--json"))["token"])

    def migrate(self) -> None:
        """A database without anything in it."""
        place_migrated(self.folder)
        self.manage("migrate", "-v0")

    def manage(self, *arguments: str, timeout_s: float = GIVE_UP_S) -> str:
        """What ``manage.py`` prints; raises when it fails."""
        return self._nursery().run(["manage.py", *arguments], ROOT, timeout_s)

    def fork(self, process: Process, words: Sequence[str], folder: Path) -> None:
        """Start a process in the line's environment."""
        self._nursery().fork(process, words, folder)

    def _nursery(self) -> Nursery:
        """The parent of processes with the present environment."""
        environment = self._environment()
        if not self.nurseries or self.nurseries[-1].environment != environment:
            self.nurseries.append(Nursery(self.folder, environment))
        return self.nurseries[-1]

    def _environment(self) -> dict[str, str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        return {
            **environment,
            "DJANGO_SETTINGS_MODULE": "spm.settings",
            "PYTHONPATH": str(ROOT),
            "SPM_DATA": str(self.folder),
            "SPM_SECRET_KEY": "only for tests",
            "SPM_PEPPER": "only for tests",
            "SPM_STORE_URL": self.store_url,
            "SPM_TRANSPORT": "amqp",
            "SPM_AMQP_URL": self.amqp_url,
            "SPM_CELERY_BROKER_URL": f"filesystem://{self.folder}",
            "SPM_CONSUMER_STEP": self.step,
            "SPM_OWN_METRICS_S": "0",  # its thread would open the store in the parent of all processes
        }

    def worker(self, number: int) -> Process:
        """Worker ``number``, from 1."""
        return Process(f"worker{number}", self.folder)

    def said(self) -> str:
        """The last lines of every worker, for a failure's message."""
        logs = (self.worker(number).log for number in range(1, self.workers + 1))
        return "\n".join(f"{log.name}:\n{log.read_text(errors='replace')[-1500:]}" for log in logs if log.exists())

    def stored(self) -> set[tuple[int, int, int]]:
        """The stamps that stand in commit records."""
        return set(stamps(self.backend, APP))

    def settle(self, rabbitmq: RabbitMQ, quiet_s: float = COUNTS_EVERY_S + 2) -> None:
        """Wait until the queues are empty and nothing has changed for a while: the broker counts only now and then."""
        vhost = Address.parse(self.amqp_url).url.rpartition("/")[2].replace("%2F", "/")
        seen, since = -1, time.monotonic()

        def quiet() -> bool:
            nonlocal seen, since
            now = len(self.stored()), rabbitmq.messages(vhost)
            if now != (seen, 0):
                seen, since = now[0], time.monotonic()
            return time.monotonic() - since > quiet_s

        assert wait_until(quiet, GIVE_UP_S), f"never quiet: {rabbitmq.messages(vhost)} messages wait"

    def drain(self, rabbitmq: RabbitMQ) -> None:
        """Wait until all that was sent is stored and no queue holds a message."""
        wanted = {(e.stamp.ms, e.stamp.process, e.stamp.sequence) for e in self.sent}
        vhost = Address.parse(self.amqp_url).url.rpartition("/")[2].replace("%2F", "/")
        assert wait_until(lambda: wanted <= self.stored(), GIVE_UP_S), f"{len(wanted - self.stored())} are missing"
        assert wait_until(lambda: rabbitmq.messages(vhost) == 0, GIVE_UP_S), "queues are not empty"
        assert self.stored() == wanted
