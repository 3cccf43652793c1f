"""``python -m tests.bench.stack [DIR]``: what the real servers of this machine take, one figure a line.

Publishing with confirms by body size and senders, HBase's own rates, and a worker's way from the queue into HBase with
the CPU time of every process per value; each after one round of warming up. All on this machine, all bounded; the
servers are started for it and stopped after it.
"""

import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ingest.transport.amqp import AmqpTransport, open_url
from spm.store.backends import open_backend
from spm.store.backends.base import Backend
from spm.wire import Envelope
from tests.chaos.line.thin_line import Line
from tests.servers.java.hbase import HBase
from tests.servers.processes import wait_until
from tests.servers.rabbitmq import RabbitMQ
from tests.support.messages import message

SENDERS = (1, 16, 64)
SIZES = (10, 1_000, 5_000)  # samples of a body, a series each
LATE = b"\xff" * 30


def main(folder: Path) -> None:
    """Prints each figure on a line."""
    rabbitmq, hbase = RabbitMQ(folder / "rabbitmq"), HBase(folder / "hbase", lasting=True)
    try:
        rabbitmq.start()
        hbase.start()
        _publishing(rabbitmq)
        _hbase(hbase)
        _through(rabbitmq, hbase)
    finally:
        rabbitmq.stop()
        hbase.stop()


def _report(what: str, count: float, unit: str, act: Callable[[], object]) -> None:
    wall, own = time.perf_counter(), time.process_time()
    act()
    took, used = time.perf_counter() - wall, time.process_time() - own
    print(f"{what}: {count / took:,.0f} {unit}/s  ({took:.2f} s, own CPU {used:.2f} s)", flush=True)


def _publishing(rabbitmq: RabbitMQ) -> None:
    for size in SIZES:
        with closing(open_url(rabbitmq.new_vhost(f"publish-{size}"))) as transport:
            body = message(1, samples=size)
            transport.publish(body, 20)
            for senders in SENDERS:
                messages = [body] * (200 if senders == 1 else 2_000)
                what = f"publish {len(body.to_bytes()):,} bytes, {senders} at once"
                _report(what, len(messages), "messages", partial(_send, transport, messages, senders))


def _send(transport: AmqpTransport, messages: Sequence[Envelope], senders: int) -> None:
    with ThreadPoolExecutor(senders) as pool:
        list(pool.map(lambda m: transport.publish(m, 60), messages))


def _hbase(hbase: HBase) -> None:
    backend = open_backend(f"{hbase.url}/rates")
    for round_ in range(3):
        print(f"HBase, round {round_ + 1}")
        _hbase_round(backend, round_)
    backend.close()


def _hbase_round(backend: Backend, round_: int) -> None:
    def key(number: int, width: int = 21) -> bytes:
        return (round_ << 32 | number).to_bytes(width, "big")

    forms = [(key(i), b"\x00\x03cpu\x00\x04host\x00\x08host%05d" % i) for i in range(10_000)]
    small = [(key(i), {b"v": os.urandom(100)}) for i in range(20_000)]
    large = [(key(i, 25), {b"v": os.urandom(65_536)}) for i in range(512)]
    _report("  new series registered", 10_000, "rows", lambda: backend.check_and_put_many("series", b"c", forms))
    _report("  put of 100 bytes", 20_000, "rows", lambda: backend.put([("pending", small)]))
    _report("  put of 64 KiB", 32, "MiB", lambda: backend.put([("log", large)]))
    _report("  get of 100 bytes", 20_000, "rows", lambda: backend.get("pending", [k for k, _ in small]))
    _report("  scan of 100 bytes", 20_000, "rows", lambda: list(backend.scan("pending", key(0), LATE)))
    _report("  scan of 64 KiB", 32, "MiB", lambda: list(backend.scan("log", key(0, 25), LATE)))
    one_by_one = [(f"k{round_}-{i}".encode(), b"v") for i in range(200)]
    _report("  check-and-put", 200, "cells", lambda: [_set(backend, k, v) for k, v in one_by_one])


def _set(backend: Backend, key: bytes, value: bytes) -> bool:
    return backend.check_and_put("config", key, b"v", None, value)


@dataclass(frozen=True, slots=True)
class Load:
    """Messages that wait in the queues for one worker: how many, and the samples of each, a series each."""

    messages: int
    samples: int

    @property
    def values(self) -> int:
        return self.messages * self.samples


LOADS = (Load(4_000, 100), Load(3_000, 1_000), Load(20_000, 10))
SOURCES = 20


def _through(rabbitmq: RabbitMQ, hbase: HBase) -> None:
    """From a publisher through the queues into HBase, by a worker in a process of its own; CPU of every process."""
    for load in LOADS:
        for round_ in range(2):
            name = f"through-{load.messages}-{load.samples}-{round_}"
            with tempfile.TemporaryDirectory() as folder:
                line = Line(Path(folder), f"{hbase.url}/{name}", rabbitmq.new_vhost(name))
                try:
                    _one_load(line, load, round_, {"broker": rabbitmq.process_id(), **_pids(hbase)})
                finally:
                    line.close()


def _pids(hbase: HBase) -> dict[str, int]:
    return {name: pid for name in ("master", "thrift") if (pid := hbase.process(name).pid())}


def _one_load(line: Line, load: Load, round_: int, servers: dict[str, int]) -> None:
    bodies = [message(i // SOURCES, source=f"host{i % SOURCES}", samples=load.samples) for i in range(load.messages)]
    envelopes = [line.restamped(body) for body in bodies]
    worker = line.start_worker()
    assert wait_until(lambda: " ready." in worker.log.read_text(), 120), "the worker does not start"
    pid = worker.pid()
    assert pid is not None, "the worker ended"
    first = Load(SOURCES, load.samples)
    _spent(
        f"new series: {first.values:,}",
        first,
        {**servers, "worker": pid},
        partial(_sent_and_stored, line, envelopes[:SOURCES]),
    )
    os.kill(pid, signal.SIGSTOP)
    what = f"{load.messages:,} messages of {load.samples:,} values, round {round_ + 1}"
    _spent(
        f"publish: {what}",
        load,
        {"broker": servers["broker"], "publisher": os.getpid()},
        partial(_send, line.transport, envelopes[SOURCES:], 64),
    )
    os.kill(pid, signal.SIGCONT)
    _spent(f"queue → HBase: {what}", load, {**servers, "worker": pid}, partial(_stored, line, load.messages))


def _sent_and_stored(line: Line, envelopes: Sequence[Envelope]) -> None:
    _send(line.transport, envelopes, 8)
    _stored(line, len(envelopes))


def _stored(line: Line, count: int) -> None:
    assert wait_until(lambda: len(line.stored()) >= count, 240), f"{len(line.stored())} of {count}"


def _spent(what: str, load: Load, processes: dict[str, int], act: Callable[[], object]) -> None:
    """Print the rate of ``act``, and the CPU time of each process per value."""
    begun, before = time.perf_counter(), {name: _cpu_s(pid) for name, pid in processes.items()}
    act()
    took = time.perf_counter() - begun
    used = {name: (_cpu_s(pid) - before[name]) * 1e6 / load.values for name, pid in processes.items()}
    parts = ", ".join(f"{name} {micros:.2f}" for name, micros in used.items())
    rates = f"{load.values / took / 1000:,.0f} k values/s, {load.messages / took:,.0f} messages/s"
    print(f"{what}: {rates}; CPU µs per value: {parts}; all {sum(used.values()):.2f}", flush=True)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]).absolute())
    else:
        with tempfile.TemporaryDirectory(prefix="spm-measure-") as temporary:
            main(Path(temporary))
