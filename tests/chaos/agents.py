"""Agents that push over HTTP and keep a log: each message acked, refused, or unknown, with the number of its attempts.

A message that got no clear answer is sent again with the same id, as our agent does it; every third is given up after
its first try instead, and stays unknown if that was unclear. Values are whole numbers that occur once.
"""

import http.client
import struct
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tests.chaos.ledger import ACKED, REFUSED, UNKNOWN, Sent
from tests.stack.stored import series_name

HOSTS, FIELDS = 20, 100
TIMEOUT_S = 15
GIVE_UP_S = 240


@dataclass(frozen=True, slots=True)
class Message:
    """Message ``number``: one line with ``FIELDS`` values of one host."""

    number: int
    start_ms: int

    @property
    def host(self) -> str:
        return f"h{self.number % HOSTS}"

    @property
    def ts(self) -> int:
        return self.start_ms + 1000 * (self.number // HOSTS)

    def body(self) -> bytes:
        """As line protocol, in ms."""
        fields = ",".join(f"f{i}={self.number * FIELDS + i}i" for i in range(FIELDS))
        return f"load,host={self.host} {fields} {self.ts}\n".encode()

    def sent(self) -> Sent:
        """Its entry in the log, before the first try."""
        named = [series_name({"__name__": f"load_f{i}", "host": self.host}) for i in range(FIELDS)]
        bits = [struct.pack("<d", self.number * FIELDS + i) for i in range(FIELDS)]
        samples = tuple((name, self.ts, value) for name, value in zip(named, bits, strict=True))
        return Sent(self.number.to_bytes(16, "big"), samples, stamps_max=0)


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
        work = [threading.Thread(target=self._work, args=(pairs[n::threads],)) for n in range(threads)]
        for thread in work:
            thread.start()
        for thread in work:
            thread.join()
        return log

    def _work(self, pairs: Sequence[tuple[Message, Sent]]) -> None:
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
            headers = {"Authorization": f"Bearer {self.token}", "X-Message-Id": message_id.hex(),
                       "X-SPM-Source": f"agent{int.from_bytes(message_id, 'big') % HOSTS}"}  # fmt: skip
            connection.request("POST", "/api/v2/write?precision=ms", body, headers)
            return connection.getresponse().status
        finally:
            connection.close()
