"""The full stack, end to end: senders → web server or RabbitMQ → worker → HBase, beside OpenTSDB on the same HBase.

Servers are private, on this machine, and started for it. A line of the table is one load: how long from the first push
until the last value is stored, and the CPU time of every process per value; all of them share this machine's cores
with the sender, whose own time stands apart. Each load is sent twice, and the second time counts: JVMs are warm then.
"""

import http.client
import itertools
import json
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from spm.store.backends import open_backend
from spm.store.dictionary import SeriesRegistry
from spm.wire import Envelope, SeriesTable, canonical
from tests.chaos.kills.storm import consumes
from tests.chaos.line.thin_line import APP, Line
from tests.servers.java.hbase import HBase
from tests.servers.java.opentsdb import OpenTSDB
from tests.servers.processes import kept_ports, wait_until
from tests.servers.rabbitmq import RabbitMQ
from tests.support.messages import message
from tests.support.stored import copies

HOSTS, SENDERS = 20, 8
PUBLISHERS = 64  # each waits for the broker's confirmation of every message
LINE_VALUES = 50  # of a line of line protocol
SMALL_VALUES = 14  # with their series' names make a message of 1 KB
DONE_S = 600
WRITTEN = ("series", "log", "pending", "ledger")  # cut at every shard; the others are made at their first use
NEW_SERIES, REGISTRATIONS = 20_000, 4
TSDB_CONNECTIONS = 4
Cpu = dict[str, float]


@dataclass(frozen=True, slots=True)
class Row:
    """One load: what was stored, in what time, with how much CPU by process (seconds)."""

    name: str
    messages: int
    values: int
    wall_s: float
    cpu: Cpu

    @property
    def micros(self) -> float:
        """CPU µs per value of all servers together."""
        return 1e6 * sum(used for name, used in self.cpu.items() if name != "sender") / self.values

    def text(self) -> str:
        """As a line of the table."""
        each = {name: 1e6 * used / self.values for name, used in self.cpu.items()}
        sender = each.pop("sender")
        parts = " ".join(f"{name} {micros:.2f}" for name, micros in each.items())
        return (
            f"{self.name:<44} {self.values / self.wall_s / 1e3:>8,.0f} {self.messages / self.wall_s:>10,.0f} "
            f"{self.micros:>8.2f}   {parts} (sender {sender:.2f})"
        )


HEAD = f"{'':<44} {'k val/s':>8} {'messages/s':>10} {'µs/value':>8}   of which"


def run(values: int, small: int, peer_values: int) -> list[Row]:
    """Measure, print the table, and answer its lines."""
    with tempfile.TemporaryDirectory(prefix="spm-full-") as folder, _servers(Path(folder)) as (hbase, rabbitmq):
        _registered(hbase)
        ours = [
            _best(partial(_product, Path(folder), hbase, rabbitmq, load))
            for load in (
                Load("HTTP, 1,000 values a message", values // 1_000, 1_000, http=True),
                Load("AMQP, 1,000 values a message", values // 1_000, 1_000),
                Load(f"queue → HBase, messages of 1 KB ({SMALL_VALUES} values)", small, SMALL_VALUES, withheld=True),
            )
        ]
        peer = OpenTSDB(Path(folder) / "opentsdb", hbase.url, _zookeeper(hbase))
        peer.start()
        try:
            theirs = [_best(lambda f=feed: _peer(peer, hbase, f, peer_values)) for feed in (_telnet, _put)]  # type: ignore[misc]
        finally:
            peer.stop()
    best = min(theirs, key=lambda row: row.micros)
    print(f"\n{HEAD}\n" + "\n".join(row.text() for row in [*ours, *theirs]))
    for row in ours:
        print(
            f"{row.name}: {best.micros / row.micros:.1f} times less CPU per value than {best.name}, "
            f"{(row.values / row.wall_s) / (best.values / best.wall_s):.1f} times its values a second"
        )
    return [*ours, *theirs]


@contextmanager
def _servers(folder: Path) -> Iterator[tuple[HBase, RabbitMQ]]:
    hbase, rabbitmq = HBase(folder / "hbase", lasting=True), RabbitMQ(folder / "rabbitmq")
    try:
        rabbitmq.start()
        hbase.start()
        yield hbase, rabbitmq
    finally:
        rabbitmq.stop()
        hbase.stop()


def _best(act: Callable[[], Row]) -> Row:
    """The second of two times."""
    first, second = act(), act()
    print(f"  {first.text()}\n  {second.text()}", flush=True)
    return second


def _zookeeper(hbase: HBase) -> int:
    return kept_ports(hbase.folder, ["zookeeper"])["zookeeper"]


# --- the product ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Load:
    """Messages of equal size; by HTTP to the web server, or straight to the broker as our columnar envelope.

    ``held``: they wait in the queues before the clock starts, so that one worker's own pace shows.
    """

    name: str
    messages: int
    values: int
    http: bool = False
    withheld: bool = False


_RUNS = itertools.count(1)


def _product(folder: Path, hbase: HBase, rabbitmq: RabbitMQ, load: Load) -> Row:
    """A line of its own for each time: tables made beforehand, a worker, a web server, all series known already."""
    name = f"full{next(_RUNS)}"
    hbase.make_tables(name, WRITTEN)
    (folder / name).mkdir()
    line = Line(folder / name, f"{hbase.url}/{name}", rabbitmq.new_vhost(name))
    try:
        token = line.token()
        line.start_web()
        worker = line.start_worker()
        assert wait_until(lambda: consumes(worker), 120), "the worker does not start"
        pids = {"worker": worker.pid(), "broker": rabbitmq.process_id(), **_hbase_pids(hbase)}
        if load.http:
            pids["web"] = line.web.pid()
        warm = [_message(number, load.values) for number in range(HOSTS)]
        send = _over_http(line, token) if load.http else _over_amqp(line)
        send(warm)
        _all_stored(line, HOSTS)
        messages = [_message(HOSTS + number, load.values) for number in range(load.messages)]
        prepared = _prepared(line, token, messages, load)

        if load.withheld:
            with _stopped(pids["worker"]):
                prepared()

        def act() -> None:
            if not load.withheld:
                prepared()
            _all_stored(line, HOSTS + load.messages)

        return _measured(load.name, load.messages, load.messages * load.values, pids, act)
    finally:
        line.close()


def _message(number: int, values: int) -> Envelope:
    """Each host reports in turn, every ten seconds."""
    envelope = message(number // HOSTS, source=f"host{number % HOSTS}", samples=values)
    return replace(envelope, message_id=number.to_bytes(16, "big"))


def _registered(hbase: HBase) -> None:
    """New series by one worker's registry, round after round: the servers' JVMs get faster for a while."""
    hbase.make_tables("registered", ["series"])
    backend = open_backend(f"{hbase.url}/registered")
    pids = {**_hbase_pids(hbase), "worker": os.getpid()}
    for round_ in range(REGISTRATIONS):
        forms = [canonical(f"metric_{i % 100}", {"host": f"host{i // 100}-{round_}"}) for i in range(NEW_SERIES)]
        table = SeriesTable.from_canonical(forms)
        row = _measured("", NEW_SERIES, NEW_SERIES, pids, lambda t=table: SeriesRegistry(backend).register(APP, t))  # type: ignore[misc]
        each = " ".join(f"{name} {1e6 * used / NEW_SERIES:.0f}" for name, used in row.cpu.items() if name != "sender")
        print(f"  new series, round {round_ + 1}: {NEW_SERIES / row.wall_s:,.0f}/s, CPU µs each: {each}", flush=True)
    backend.close()


def _prepared(line: Line, token: str, messages: Sequence[Envelope], load: Load) -> Callable[[], None]:
    """What sends them, with nothing left to be made."""
    if load.http:
        bodies = [(_body(m), m.source) for m in messages]
        return lambda: _post_all(line, token, bodies)
    stamped = [line.restamped(m) for m in messages]
    return lambda: _spread([lambda n=n: _publish(line, stamped[n::PUBLISHERS]) for n in range(PUBLISHERS)])  # type: ignore[misc]


@contextmanager
def _stopped(pid: int | None) -> Iterator[None]:
    """Meanwhile a process does nothing."""
    assert pid is not None, "the worker ended"
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _over_http(line: Line, token: str) -> Callable[[Sequence[Envelope]], None]:
    return lambda messages: _post_all(line, token, [(_body(m), m.source) for m in messages])


def _over_amqp(line: Line) -> Callable[[Sequence[Envelope]], None]:
    return lambda messages: _publish(line, [line.restamped(m) for m in messages])


def _publish(line: Line, messages: Sequence[Envelope]) -> None:
    for envelope in messages:
        line.transport.publish(envelope, 60)


def _body(envelope: Envelope) -> bytes:
    """Line protocol (ms): lines of ``LINE_VALUES`` fields."""
    ts = int(envelope.ts[0])
    values = envelope.values.tolist()
    lines = []
    for at in range(0, len(values), LINE_VALUES):
        fields = ",".join(f"f{i}={int(v)}i" for i, v in enumerate(values[at : at + LINE_VALUES]))
        lines.append(f"load{at // LINE_VALUES},host={envelope.source} {fields} {ts}\n")
    return "".join(lines).encode()


def _post_all(line: Line, token: str, bodies: Sequence[tuple[bytes, str]]) -> None:
    def work(some: Sequence[tuple[bytes, str]]) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", line.port, timeout=60)
        for body, source in some:
            headers = {"Authorization": f"Bearer {token}", "X-SPM-Source": source}
            connection.request("POST", "/write?precision=ms", body, headers)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 204, answer.status

    _spread([lambda n=n: work(bodies[n::SENDERS]) for n in range(SENDERS)])  # type: ignore[misc]


def _all_stored(line: Line, messages: int) -> None:
    def stored() -> bool:
        time.sleep(0.2)  # looking takes CPU, too: HBase's and this process's
        return len(copies(line.backend, APP)) >= messages

    assert wait_until(stored, DONE_S), f"{len(copies(line.backend, APP))} of {messages}"


# --- OpenTSDB ---------------------------------------------------------------------------------------------------------


def _peer(peer: OpenTSDB, hbase: HBase, feed: Callable[[OpenTSDB, int, int], None], values: int) -> Row:
    """The same 20 hosts and metrics; the points of each time lie at seconds that no other time has."""
    number = next(_RUNS)
    feed(peer, number * 10_000_000, 20_000)  # its names are known afterwards
    _settled(peer, 20_000, peer.statistics()["tsd.hbase.rpcs.put"] - 20_000)
    before, number = peer.statistics()["tsd.hbase.rpcs.put"], next(_RUNS)
    pids = {"opentsdb": peer.process.pid(), "hbase": hbase.process("master").pid()}
    name = f"OpenTSDB 2.4.1, {feed.__name__[1:]}"

    def act() -> None:
        feed(peer, number * 10_000_000, values)
        _settled(peer, values, before)

    return _measured(name, values // 1_000, values, pids, act)


def _settled(peer: OpenTSDB, values: int, before: int) -> None:
    """Until HBase has answered every put: none waits, none is under way."""

    def done() -> bool:
        time.sleep(0.2)
        statistics = peer.statistics()
        waiting = statistics.get("tsd.hbase.region_clients.pending_rpcs", 0) + statistics.get(
            "tsd.hbase.region_clients.inflight_rpcs", 0
        )
        return statistics["tsd.hbase.rpcs.put"] - before >= values and waiting == 0

    assert wait_until(done, DONE_S), peer.statistics()


def _points(first_s: int, values: int, part: int, parts: int) -> Iterator[list[tuple[str, int, int, str]]]:
    """(metric, second, value, host) by the thousand: one message each."""
    for number in range(part, values // 1_000, parts):
        host, at = f"host{number % HOSTS}", first_s + number // HOSTS
        yield [(f"metric_{i}", at, number * 1_000 + i, host) for i in range(1_000)]


def _telnet(peer: OpenTSDB, first_s: int, values: int) -> None:
    def work(part: int) -> None:
        with socket.create_connection(("127.0.0.1", peer.port), timeout=60) as connection:
            for points in _points(1_000_000_000 + first_s, values, part, TSDB_CONNECTIONS):
                text = "".join(f"put {m} {at} {value} host={host}\n" for m, at, value, host in points)
                connection.sendall(text.encode())
            connection.sendall(b"version\n")  # it answers in order: what was sent before has been taken
            assert connection.recv(200), "OpenTSDB hung up"

    _spread([lambda n=n: work(n) for n in range(TSDB_CONNECTIONS)])  # type: ignore[misc]


def _put(peer: OpenTSDB, first_s: int, values: int) -> None:
    def work(part: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", peer.port, timeout=60)
        for points in _points(1_000_000_000 + first_s, values, part, TSDB_CONNECTIONS):
            body = json.dumps(
                [
                    {"metric": m, "timestamp": at, "value": value, "tags": {"host": host}}
                    for m, at, value, host in points
                ]
            )
            connection.request("POST", "/api/put", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 204, answer.status

    _spread([lambda n=n: work(n) for n in range(TSDB_CONNECTIONS)])  # type: ignore[misc]


# --- measuring --------------------------------------------------------------------------------------------------------


def _spread(acts: Sequence[Callable[[], None]]) -> None:
    failures: list[BaseException] = []

    def watched(act: Callable[[], None]) -> None:
        try:
            act()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=watched, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def _measured(name: str, messages: int, values: int, pids: dict[str, int | None], act: Callable[[], object]) -> Row:
    known = {process: pid for process, pid in pids.items() if pid is not None} | {"sender": os.getpid()}
    begun, before = time.perf_counter(), {process: _cpu_s(pid) for process, pid in known.items()}
    act()
    wall_s = time.perf_counter() - begun
    return Row(name, messages, values, wall_s, {p: _cpu_s(pid) - before[p] for p, pid in known.items()})


def _hbase_pids(hbase: HBase) -> dict[str, int | None]:
    return {"hbase": hbase.process("master").pid(), "gateway": hbase.process("thrift").pid()}


def _cpu_s(pid: int) -> float:
    """Of a process and those it has begun, since the web server's work is done by a child; of this one, itself."""
    return sum(map(_own_cpu_s, [pid, *([] if pid == os.getpid() else _children(pid))]))


def _children(pid: int) -> list[int]:
    children = [
        int(child) for file in Path(f"/proc/{pid}/task").glob("*/children") for child in file.read_text().split()
    ]
    return [*children, *(grandchild for child in children for grandchild in _children(child))]


def _own_cpu_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
