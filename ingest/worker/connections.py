"""A worker's own connections and threads: the consumer, the receiver that feeds it, the publisher of dead letters.

The connection to RabbitMQ is our own and not the one Celery has to its broker: that may be a folder instead of
RabbitMQ, and is served by the thread of the worker's event loop, which a write of some seconds would keep from
heartbeats and tasks. For the same reason ``ConsumerStep`` belongs to the worker and not to Celery's consumer, which
restarts with its broker.
"""

import sys
import threading
from importlib import import_module

from celery import bootsteps
from django.conf import settings

from ingest.accept.announcer import Accepting
from ingest.transport.amqp import Publisher
from ingest.transport.amqp_receive import Receiver
from ingest.transport.delivery import Delivery
from ingest.transport.help_calls import Calling
from ingest.transport.topology import Address
from ingest.worker.consumer import Consumer, Door
from ingest.worker.dead_queue import DeadQueue
from ingest.worker.metrics import Gauges, text
from ingest.worker.poison_sandbox import Trial
from ingest.writer import Writer
from spm import limits, telemetry
from spm.clock import SystemClock
from spm.store.backends import open_backend
from spm.store.backends.base import Backend
from spm.store.keys import Distribution
from spm.wire import Envelope


class AgentsDoor:
    """The door of agents' lines, made for the first of them.

    A worker may start while the store is down; and the door's models cannot be loaded before Django's apps, as this
    module is: so it is loaded by name.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._made: Door | None = None
        self._accepting: Accepting | None = None

    def accept(self, delivery: Delivery) -> Envelope | None:
        """See ``lines.LineDoor``."""
        return self._door().accept(delivery)

    def whose(self, delivery: Delivery) -> int | None:
        """Likewise."""
        return self._door().whose(delivery)

    def settled(self, envelope: Envelope) -> None:
        """Likewise."""
        self._door().settled(envelope)

    def retire(self) -> None:
        """Likewise."""
        self._door().retire()

    def close(self) -> None:
        """Likewise."""
        if self._accepting is not None:
            self._accepting.close()

    def _door(self) -> Door:
        if self._made is None:
            self._accepting = Accepting(self._backend, SystemClock())
            guard = import_module("ingest.accept.admission").Guard(self._backend, SystemClock())
            made: Door = import_module("ingest.worker.agent_messages").LineDoor(self._accepting, SystemClock(), guard)
            self._made = made
        return self._made


class Service:
    """A consumer with its connections and its thread; with a port, its metrics too."""

    consumer = Consumer
    trial = (sys.executable, "-m", "ingest.worker.poison_sandbox")

    def __init__(self, amqp_url: str, store_url: str, metrics_port: int | None = None) -> None:
        address, clock = Address.parse(amqp_url), SystemClock()
        self._backend = open_backend(store_url)
        self._grave = Publisher(address)
        self._door = AgentsDoor(self._backend)
        self._trial = Trial(self.trial)
        dead_queue = DeadQueue(self._backend, self._door.whose, clock)
        self._consumer = self.consumer(
            Writer(self._backend, Distribution()),
            self._grave,
            door=self._door,
            letters=dead_queue.keep,
            trial=self._trial.of,
        )
        calling = Calling(self._consumer.idle.seconds, clock)
        self._receiver = Receiver(address, self._consumer.take, letters=True, calling=calling)
        self._consumer.source = self._receiver
        self._thread = threading.Thread(target=self._consumer.run, name="consumer", daemon=True)
        self._counted = telemetry.include(self.text)
        self.gauges = None if metrics_port is None else Gauges(metrics_port, lambda: telemetry.text(self.text()))

    def text(self) -> str:
        """Its metrics, as Prometheus reads them."""
        return text(self._consumer.tally, round(SystemClock().monotonic() * 1000), self._receiver.depths)

    def start(self) -> None:
        """Begin to receive."""
        self._thread.start()
        self._receiver.open()

    def stop(self) -> None:
        """Write what is at hand within ``CONSUME_STOP_S``; everything else is given back."""
        self._counted()
        self._consumer.stop()
        self._thread.join(limits.CONSUME_STOP_S)
        self._receiver.close()
        self._door.close()
        self._grave.close()
        self._trial.close()
        if self.gauges is not None:
            self.gauges.close()


class ConsumerStep(bootsteps.StartStopStep):  # type: ignore[misc]
    """Starts and stops the service with the worker."""

    requires = {"celery.worker.components:Pool"}  # the pool forks before there are threads
    service = Service

    def __init__(self, worker: object, **options: object) -> None:
        super().__init__(worker, **options)
        self._service: Service | None = None

    def start(self, worker: object) -> None:
        """See the class."""
        port = settings.SPM_WORKER_METRICS_PORT or None
        self._service = self.service(settings.SPM_AMQP_URL, settings.SPM_STORE_URL, port)
        self._service.start()

    def stop(self, worker: object) -> None:
        """See the class."""
        service, self._service = self._service, None
        if service is not None:
            service.stop()

    terminate = stop
