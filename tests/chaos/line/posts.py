"""Senders that push small bodies over kept connections, and note what each answer was and how long it took.

Message ``number`` is one line whose value is its number; its id is its number too. ``Posts.again`` sends a message
until it is acknowledged, as our agent does; ``Posts.once`` leaves it at the first answer. ``stored``: what was kept.
"""

import contextlib
import http.client
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from spm.clock import SystemClock
from spm.query.reader import AppStorage
from spm.query.request.batches import Matcher
from spm.query.view.decoded_rows import PageCache
from spm.store.backends.base import Backend
from spm.store.keys import PlacementTable
from tests.support.messages import RECENT_MS

HOSTS = 50
START_MS = RECENT_MS
TIMEOUT_S = 20


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer; the status 0 stands for none."""

    number: int
    status: int
    again_s: str | None  # Retry-After
    at: float
    took_s: float


@dataclass(slots=True)
class Posts:
    """Threads of senders, each with a connection and numbers of its own."""

    port: int
    token: str
    threads: int = 8
    acked: list[int] = field(default_factory=list)
    tries: Counter[int] = field(default_factory=Counter)  # of those that needed several
    answers: list[Answer] = field(default_factory=list)
    working: list[threading.Thread] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def again(self, wanted: Callable[[int], bool]) -> None:
        """Begin to send messages, each until it is acknowledged, while ``wanted(number)``."""
        self._begin(lambda connection, number: self._until_acked(connection, number), wanted, 0.0)

    def once(self, pause_s: float) -> None:
        """Begin to send messages, each once, until ``over``."""
        self._begin(self._noted, lambda number: not self.over.is_set(), pause_s)

    def join(self) -> None:
        """Wait for the senders."""
        for thread in self.working:
            thread.join()

    def _begin(
        self, send: Callable[["_Connection", int], object], wanted: Callable[[int], bool], pause_s: float
    ) -> None:
        def work(first: int) -> None:
            connection = _Connection(self.port, self.token)
            number = first
            while wanted(number):
                send(connection, number)
                number += self.threads
                time.sleep(pause_s)
            connection.close()

        self.working = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(self.threads)]
        for thread in self.working:
            thread.start()

    def _until_acked(self, connection: "_Connection", number: int) -> None:
        tries = 1
        while connection.post(number).status != 204:
            tries += 1
            time.sleep(0.05)
        if tries > 1:
            self.tries[number] = tries
        self.acked.append(number)

    def _noted(self, connection: "_Connection", number: int) -> None:
        self.answers.append(connection.post(number))


class _Connection:
    """One kept connection, made again when it breaks."""

    def __init__(self, port: int, token: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
        self._token = token

    def post(self, number: int) -> Answer:
        begun = time.monotonic()
        headers = {"Authorization": f"Bearer {self._token}", "X-Message-Id": number.to_bytes(16, "big").hex()}
        try:
            self._connection.request("POST", "/write?precision=ms", body(number), headers)
            response = self._connection.getresponse()
            response.read()
            status, again = response.status, response.headers["Retry-After"]
        except (OSError, http.client.HTTPException):
            self._connection.close()
            status, again = 0, None
        return Answer(number, status, again, time.monotonic(), time.monotonic() - begun)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._connection.close()


def body(number: int) -> bytes:
    """Message ``number``."""
    return b"posted,host=h%d value=%di %d\n" % (number % HOSTS, number, _time(number))


def _time(number: int) -> int:
    return START_MS + 1000 * (number // HOSTS)


def stored(backend: Backend, app: int, numbers: int) -> np.ndarray:
    """The values that queries read, with repetitions, sorted; each at the time of its message."""
    storage = AppStorage(backend, app, placement=PlacementTable(), clock=SystemClock(), cache=PageCache())
    stored = list(_by_days(storage, _time(numbers)))
    values = np.concatenate([v for v, _ in stored]) if stored else np.empty(0)
    times = np.concatenate([t for _, t in stored]) if stored else np.empty(0)
    wrong = times != START_MS + 1000 * (values.astype(np.int64) // HOSTS)
    assert not wrong.any(), f"values at strange times: {values[wrong][:5]}"
    return np.sort(values.astype(np.int64))


def _by_days(storage: AppStorage, end_ms: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for start in range(START_MS - 1, end_ms + 1, 86_400_000):
        batch = storage.select([Matcher("__name__", "=", "posted")], start, min(start + 86_400_000, end_ms))
        yield batch.values, batch.ts
