"""A worker's own connections and threads: the consumer, its receiver, and the publisher of dead letters.

The connection to RabbitMQ is our own and not the one that Celery has to its broker. That one may be a folder instead of
RabbitMQ, and it is served by the thread of the worker's event loop, which a write of some seconds would keep from
heartbeats and tasks. For the same reason ``ConsumerStep`` belongs to the worker and not to Celery's consumer, which
restarts with its broker. Enter by ``ConsumerStep``, which the setting ``SPM_CONSUMER_STEP`` names.
"""

import sys
import threading
from collections.abc import Sequence
from importlib import import_module
from typing import Protocol, cast

from celery import bootsteps
from django.conf import settings

from ingest.transport import topology
from ingest.transport.amqp import Publisher
from ingest.transport.amqp_receive import Receiver
from ingest.transport.delivery import Delivery
from ingest.transport.help_calls import HelpSignal
from ingest.transport.topology import Address
from ingest.worker.batch import Batcher, Bounds, PastBatcher, bounds_of
from ingest.worker.consumer import Consumer
from ingest.worker.dead_queue import DeadLetterRecorder
from ingest.worker.forwarding import Forwarder
from ingest.worker.interfaces import MessageAcceptor
from ingest.worker.metrics import MetricsServer, metrics_text
from ingest.worker.poison_sandbox import PoisonSandbox
from ingest.writer import Writer
from spm import limits, telemetry
from spm.clock import Clock, SystemClock
from spm.store.backends import open_backend
from spm.store.backends.base import Backend
from spm.store.keys import PlacementTable
from spm.wire import Envelope


class _ClosableAcceptor(MessageAcceptor, Protocol):
    def close(self) -> None: ...


class _AcceptorModule(Protocol):
    """The part of ``agent_messages`` that is used here."""

    def open_acceptor(self, backend: Backend, clock: Clock) -> _ClosableAcceptor: ...


class LazyAgentMessageAcceptor:
    """An ``AgentMessageAcceptor`` that is opened with the first message of an agent.

    A worker may start while the store is down. The acceptor's module is loaded by name, since its models need Django's
    applications, which Celery sets up after it has loaded this module.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._opened: _ClosableAcceptor | None = None

    def accept_many(self, deliveries: Sequence[Delivery]) -> list[Envelope | Exception | None]:
        return self._acceptor().accept_many(deliveries)

    def app_of(self, delivery: Delivery) -> int | None:
        return self._acceptor().app_of(delivery)

    def confirm(self, envelope: Envelope) -> None:
        self._acceptor().confirm(envelope)

    def retire(self) -> None:
        self._acceptor().retire()

    def close(self) -> None:
        """Announce the final counts, if there are any."""
        if self._opened is not None:
            self._opened.close()

    def _acceptor(self) -> _ClosableAcceptor:
        if self._opened is None:
            module = cast(_AcceptorModule, import_module("ingest.worker.agent_messages"))
            self._opened = module.open_acceptor(self._backend, SystemClock())
        return self._opened


class ConsumerService:
    """Two consumers, the second for samples of long ago, with their connections and threads; with a port, metrics."""

    consumer = Consumer
    sandbox_command = (sys.executable, "-m", "ingest.worker.poison_sandbox")

    def __init__(
        self,
        amqp_url: str,
        store_url: str,
        metrics_port: int | None = None,
        *,
        bounds: Bounds | None = None,
        unacked_max: int = limits.CONSUME_UNACKED_MAX,
    ) -> None:
        """``bounds`` are those of batches of live samples; ``unacked_max`` is the prefetch of their queues together."""
        address, clock = Address.parse(amqp_url), SystemClock()
        self._backend = open_backend(store_url)
        self._publisher = Publisher(address)
        self._acceptor = LazyAgentMessageAcceptor(self._backend)
        self._sandboxes = [PoisonSandbox(self.sandbox_command) for _ in range(2)]  # each is one thread's
        recorder = DeadLetterRecorder(self._backend, self._acceptor.app_of, clock)
        writer = Writer(self._backend, PlacementTable())
        self._consumer = self.consumer(
            writer,
            self._publisher,
            acceptor=self._acceptor,
            batcher=Batcher(bounds),
            record_dead_letters=recorder.record,
            sandbox=self._sandboxes[0].try_delivery,
            forwarder=Forwarder(self._publisher, address, passes_past=True),
        )
        self._past_consumer = self.consumer(
            writer,
            self._publisher,
            sandbox=self._sandboxes[1].try_delivery,
            forwarder=Forwarder(self._publisher, address, passes_past=False),
            batcher=PastBatcher(),
            by_turns=True,
        )
        help_signal = HelpSignal(self._consumer.idle.seconds, clock)
        self._receiver = Receiver(
            address, self._take, dead_letters=True, help_signal=help_signal, unacked_max=unacked_max
        )
        self._threads = []
        for consumer, name in ((self._consumer, "consumer"), (self._past_consumer, "consumer of the past")):
            consumer.connect(self._receiver)
            self._threads.append(threading.Thread(target=consumer.run, name=name, daemon=True))
        self._exclude_metrics = telemetry.include(self.metrics_text)
        self.metrics_server = (
            None
            if metrics_port is None
            else MetricsServer(metrics_port, lambda: telemetry.exposition(self.metrics_text()))
        )

    def metrics_text(self) -> str:
        """Return its metrics in Prometheus' text form."""
        tally = self._consumer.tally + self._past_consumer.tally
        return metrics_text(tally, round(SystemClock().monotonic() * 1000), self._receiver.depths)

    def start(self) -> None:
        """Begin to receive."""
        for thread in self._threads:
            thread.start()
        self._receiver.open()

    def _take(self, delivery: Delivery) -> None:
        is_past = delivery.queue in topology.PAST_NAMES
        (self._past_consumer if is_past else self._consumer).take(delivery)

    def stop(self) -> None:
        """Write what is at hand within ``CONSUME_STOP_S``; everything else is given back."""
        clock = SystemClock()
        self._exclude_metrics()
        self._consumer.stop()
        self._past_consumer.stop()
        end = clock.monotonic() + limits.CONSUME_STOP_S
        for thread in self._threads:
            thread.join(max(0.0, end - clock.monotonic()))
        self._receiver.close()
        self._acceptor.close()
        self._publisher.close()
        for sandbox in self._sandboxes:
            sandbox.close()
        if self.metrics_server is not None:
            self.metrics_server.close()


class ConsumerStep(bootsteps.StartStopStep):  # type: ignore[misc]
    """Starts and stops the service with the worker."""

    requires = {"celery.worker.components:Pool"}  # the pool forks before there are threads
    service = ConsumerService

    def __init__(self, worker: object, **options: object) -> None:
        super().__init__(worker, **options)
        self._service: ConsumerService | None = None

    def start(self, worker: object) -> None:
        """Start the service by the settings."""
        port = settings.SPM_WORKER_METRICS_PORT or None
        self._service = self.service(
            settings.SPM_AMQP_URL,
            settings.SPM_STORE_URL,
            port,
            bounds=bounds_of(settings.SPM_BATCH_MESSAGES, settings.SPM_BATCH_AGE_MS),
            unacked_max=settings.SPM_PREFETCH,
        )
        self._service.start()

    def stop(self, worker: object) -> None:
        """Stop the service, if it runs."""
        service, self._service = self._service, None
        if service is not None:
            service.stop()

    terminate = stop
