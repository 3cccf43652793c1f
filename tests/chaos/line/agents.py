"""Agents that push over HTTP and keep a log: each message acked, refused, or unknown, with the number of its attempts.

A message that got no clear answer is sent again with the same id, as our agent does it; every third is given up after
its first try instead, and stays unknown if that was unclear. Values are whole numbers that occur once. A log of many
millions of samples takes little memory: an entry makes its samples when it is asked for them.
"""

import http.client
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from typing import overload
from urllib.parse import urlsplit

from tests.chaos.line.checker import ACKED, REFUSED, UNKNOWN, Sent
from tests.support.messages import LONG_AGO_MS
from tests.support.stored import Sample, series_name

HOSTS, FIELDS = 20, 100
PAST_HOSTS = frozenset(range(3, HOSTS, 5))
TIMEOUT_S = 15
GIVE_UP_S = 240


@dataclass(frozen=True, slots=True)
class Message:
    """Message ``number``: one line with some values of one host."""

    number: int
    start_ms: int
    fields: int = FIELDS

    @property
    def host(self) -> str:
        return f"h{self.number % HOSTS}"

    @property
    def ts(self) -> int:
        return self.start_ms + 1000 * (self.number // HOSTS)

    def body(self) -> bytes:
        """As line protocol, in ms."""
        fields = ",".join(f"f{i}={self.number * self.fields + i}i" for i in range(self.fields))
        return f"load,host={self.host} {fields} {self.ts}\n".encode()

    def sent(self) -> Sent:
        """Its entry in the log, before the first try."""
        return Sent(self.number.to_bytes(16, "big"), Samples(self), stamps_max=0)


def message_of_either_kind(number: int, start_ms: int, fields: int = FIELDS) -> Message:
    """A message with live samples, or of one host in five with samples of long ago, which go another way."""
    return Message(number, start_ms - (LONG_AGO_MS if number % HOSTS in PAST_HOSTS else 0), fields)


@dataclass(frozen=True, slots=True)
class Samples(Sequence[Sample]):
    """What a message holds, made when it is looked at."""

    message: Message

    def __len__(self) -> int:
        return self.message.fields

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Sample]: ...
    def __getitem__(self, index: int | slice) -> Sample | Sequence[Sample]:
        return list(self)[index]

    def __iter__(self) -> Iterator[Sample]:
        m = self.message
        values = range(m.number * m.fields, (m.number + 1) * m.fields)
        names = (_name(m.host, i) for i in range(m.fields))
        return ((name, m.ts, struct.pack("<d", value)) for name, value in zip(names, values, strict=True))


@lru_cache(maxsize=100_000)
def _name(host: str, number: int) -> str:
    return series_name({"__name__": f"load_f{number}", "host": host})


@dataclass(slots=True)
class Agents:
    """Some threads that send their share of the messages at a steady pace."""

    url: str
    token: str
    pause_s: float
    patient: bool = False  # none is given up after its first try
    answered_s: list[float] = field(default_factory=list)  # how long each acknowledgement took
    refused_for_now: int = 0

    def send(self, messages: Sequence[Message], threads: int = 4) -> list[Sent]:
        """Send all; the log, in the order of the messages."""
        log = [message.sent() for message in messages]
        pairs = list(zip(messages, log, strict=True))
        _in_parallel([lambda n=n: self._work(pairs[n::threads]) for n in range(threads)])  # type: ignore[misc]
        return log

    def send_until(self, enough: Callable[[int], bool], make: Callable[[int], Message], threads: int = 4) -> list[Sent]:
        """Send message after message until the number sent is ``enough``; the log, in the order of the messages."""
        logs: list[list[tuple[Message, Sent]]] = [[] for _ in range(threads)]

        def endless(n: int) -> Iterator[tuple[Message, Sent]]:
            for number in count(n, threads):
                if enough(sum(map(len, logs))):
                    return
                message = make(number)
                logs[n].append((message, message.sent()))
                yield logs[n][-1]

        _in_parallel([lambda n=n: self._work(endless(n)) for n in range(threads)])  # type: ignore[misc]
        return [entry for _, entry in sorted((pair for log in logs for pair in log), key=lambda pair: pair[0].number)]

    def _work(self, pairs: Iterable[tuple[Message, Sent]]) -> None:
        for message, entry in pairs:
            end = time.monotonic() + (GIVE_UP_S if self.patient or message.number % 3 else 0)
            while entry.outcome == UNKNOWN:
                entry.stamps_max += 1
                entry.outcome = self._try(message, entry.message_id)
                time.sleep(self.pause_s)
                if time.monotonic() > end:
                    break

    def _try(self, message: Message, message_id: bytes) -> str:
        begun = time.monotonic()
        try:
            status = self._post(message.body(), message_id)
        except (OSError, http.client.HTTPException):
            return UNKNOWN
        if status == 503:
            self.refused_for_now += 1
            return UNKNOWN
        self.answered_s.append(time.monotonic() - begun)
        return ACKED if status == 204 else REFUSED

    def _post(self, body: bytes, message_id: bytes) -> int:
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=TIMEOUT_S)
        try:
            headers = {
                "Authorization": f"Bearer {self.token}",
                "X-Message-Id": message_id.hex(),
                "X-SPM-Source": f"agent{int.from_bytes(message_id, 'big') % HOSTS}",
            }
            connection.request("POST", "/api/v2/write?precision=ms", body, headers)
            return connection.getresponse().status
        finally:
            connection.close()


def _in_parallel(acts: Sequence[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=act) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
