"""``python -m tests.stack.measure [DIR]``: what the real servers of this machine take, one figure a line.

Publishing with confirms by body size and senders, a worker's way from the queue into HBase, and HBase's own rates, each
after one round of warming up. All on this machine, all bounded; the servers are started for it and stopped after it.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

from ingest.consume import Service
from ingest.transport.amqp import AmqpTransport, open_url
from spm.clock import random_u64
from spm.store.backends import open_backend
from spm.store.backends.base import Backend
from spm.wire import Envelope, Stamp
from tests.stack.hbase import HBase
from tests.stack.processes import wait_until
from tests.stack.rabbitmq import RabbitMQ
from tests.stack.rows import message
from tests.stack.stored import stamps

SENDERS = (1, 16, 64)
SIZES = (10, 1_000, 5_000)  # samples of a body, a series each
LATE = b"\xff" * 30


def main(folder: Path) -> None:
    """See the module."""
    rabbitmq, hbase = RabbitMQ(folder / "rabbitmq"), HBase(folder / "hbase", lasting=True)
    try:
        rabbitmq.start()
        hbase.start()
        _publishing(rabbitmq)
        _hbase(hbase)
        _consuming(rabbitmq, hbase)
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


def _consuming(rabbitmq: RabbitMQ, hbase: HBase) -> None:
    """Bodies of 100 samples wait in the queues; one worker takes them all."""
    for round_ in range(2):
        amqp_url, store_url = rabbitmq.new_vhost(f"consume-{round_}"), f"{hbase.url}/consume{round_}"
        messages = [
            replace(message(i // 20, source=f"host{i % 20}", samples=100), stamp=Stamp(i + 1, random_u64() >> 40, 0))
            for i in range(4_000)
        ]
        with closing(open_url(amqp_url)) as transport:
            _send(transport, messages, 64)
        service, backend = Service(amqp_url, store_url), open_backend(store_url)
        what = f"queue → HBase, {len(messages):,} messages of 100 samples, round {round_ + 1}"
        _report(what, len(messages) * 100, "samples", partial(_drain, service, backend, len(messages)))
        service.stop()
        backend.close()


def _drain(service: Service, backend: Backend, count: int) -> None:
    service.start()
    assert wait_until(lambda: len(stamps(backend)) >= count, 120), f"{len(stamps(backend))} of {count}"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]).absolute())
    else:
        with tempfile.TemporaryDirectory(prefix="spm-measure-") as temporary:
            main(Path(temporary))
