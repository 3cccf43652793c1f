"""Behind nginx and Caddy: what one client sends never changes what another one is answered.

Proxies send the requests of all clients over the same few connections. Where proxy and server disagreed on where a
request ends, the rest of a hostile client's request would become the begin of somebody else's. So hostile clients send
generated requests while honest ones ask for echoes, and everybody looks at their own answers.

Caddy 2.6 breaks off one in some 100,000 answers to requests with a body by itself, without any hostile client: when an
answer comes while Go's client still looks for the end of that body, it closes its connection to the server, and its log
says so. Such an answer is none: the honest client asks again.
"""

import asyncio
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.conftest import missing_service
from tests.servers.processes import Process
from tests.servers.proxies import PROXIES, missing_proxy, start_proxy
from tests.spm.web.http_protocol.generated import conversation, in_pieces
from tests.spm.web.http_protocol.serving import HOST, QUICK, Served, serving
from tests.support.event_loop import on_loop

pytestmark = [pytest.mark.real, pytest.mark.slow]
FORMS = [(name, buffering) for name in PROXIES for buffering in ((False, True) if name == "nginx" else (False,))]
PATIENT = replace(QUICK, idle_s=75, head_s=2, body_stall_s=2, body_grace_s=2)
_QUIET_S = 0.5
ECHO = re.compile(rb'\{"method".*?"path": "(/[^"]*)"')
_OWN_END = "use of closed network connection"  # in Caddy's log: it closed the connection, not the server


@dataclass(frozen=True)
class Proxied:
    """A server that trusts the proxy in front of it."""

    served: Served
    process: Process
    port: int

    def own_ends(self) -> int:
        """How many connections to the server the proxy says to have closed while it read an answer."""
        return self.process.log.read_text().count(_OWN_END) if self.process.name == "caddy" else 0


@pytest.fixture(params=FORMS, ids=lambda form: f"{form[0]}{' with buffers' if form[1] else ''}")
def proxied(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Proxied]:
    name, buffering = request.param
    if reason := missing_proxy(name):
        missing_service(reason)
    with serving(PATIENT, proxies=("127.0.0.1",)) as served:
        process, port = start_proxy(name, tmp_path, served.port, buffering=buffering)
        try:
            yield Proxied(served, process, port)
        finally:
            process.stop()


class MixedClients:
    """Hostile and honest clients of one proxy, and what they saw."""

    def __init__(self, port: int, seed: int) -> None:
        self.port, self.seed = port, seed
        self.seen: Counter[str] = Counter()
        self.broken_off = 0  # answers to honest clients
        self._ended = False
        self._names: set[str] = set()

    async def run(self, conversations: int) -> None:
        """So many conversations of hostile clients, 24 at a time, beside four honest ones."""
        numbers = iter(range(conversations))
        honest = [asyncio.create_task(self._honest(n)) for n in range(4)]
        await asyncio.gather(*(self._hostile(numbers) for _ in range(24)))
        self._ended = True
        await asyncio.gather(*honest)

    async def _hostile(self, numbers: Iterator[int]) -> None:
        for number in numbers:
            dice = random.Random(f"{self.seed}-{number}")
            name = f"{dice.getrandbits(64):016x}"
            self._names.add(name)
            requests = conversation(dice, name, dice.randint(1, 8), dice.choice((0.0, 0.05, 0.3)))
            requests.append(b"GET /%b-99 HTTP/1.1\r\n%bConnection: close\r\n\r\n" % (name.encode(), HOST))
            data = await self._said(in_pieces(dice, b"".join(requests)))
            paths = [path.decode() for path in ECHO.findall(data)]
            names = {id_ for path in paths for id_ in re.findall(r"[0-9a-f]{16}|honest", path)}
            assert names & (self._names | {"honest"}) <= {name}, (name, data)
            ours = [int(path.rsplit("-", 1)[1]) for path in paths if re.fullmatch(rf"/{name}-\d+", path)]
            assert ours == sorted(set(ours)), (name, data)
            self.seen.update(requests=len(requests), answered=len(paths))

    async def _said(self, pieces: list[bytes]) -> bytes:
        """All that is answered, until the proxy closes or has nothing more to say for a while."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        data = b""
        try:
            for piece in pieces:
                writer.write(piece)
                await asyncio.sleep(0)
            while more := await asyncio.wait_for(reader.read(1 << 16), _QUIET_S):
                data += more
        except (ConnectionError, TimeoutError):
            pass
        writer.close()
        return data

    async def _honest(self, number: int) -> None:
        dice, count = random.Random(number), 0
        while not self._ended:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            for _ in range(50):
                count += 1
                name, body = f"/honest-{number}-{count}", b"b" * dice.choice((0, 10, 5_000))
                writer.write(
                    b"PUT %b HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n%b" % (name.encode(), HOST, len(body), body)
                )
                head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
                length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
                assert length is not None, head
                try:
                    answer = await reader.readexactly(int(length[1]))
                except asyncio.IncompleteReadError:
                    self.broken_off += 1
                    break
                status = head.split()[1].decode()
                self.seen[f"honest {status}"] += 1
                if status == "200":
                    request = json.loads(answer)
                    assert (request["path"], request["body"]) == (name, body.decode())
                    assert request["client"][0] == "127.0.0.1"
            writer.close()


def test_honest_clients_get_their_own_answers_beside_hostile_ones(proxied: Proxied) -> None:
    mixed = MixedClients(proxied.port, 1)
    on_loop(mixed.run(200))
    assert mixed.seen["answered"] > mixed.seen["requests"] / 4
    assert set(mixed.seen) == {"requests", "answered", "honest 200"}
    assert mixed.broken_off <= proxied.own_ends()
    assert proxied.served.tracebacks() == []


@pytest.mark.proof
def test_a_hundred_thousand_hostile_requests_behind_a_proxy(proxied: Proxied, figure: Callable[[str], None]) -> None:
    mixed = MixedClients(proxied.port, 2)
    on_loop(mixed.run(24_000), 3600)
    seen = mixed.seen
    figure(f"{seen['requests']:,} hostile requests, {seen['answered']:,} answered; {seen['honest 200']:,} honest ones")
    assert mixed.seen["requests"] > 100_000
    assert set(mixed.seen) == {"requests", "answered", "honest 200"}
    assert mixed.broken_off <= proxied.own_ends()
    assert proxied.served.tracebacks() == []
