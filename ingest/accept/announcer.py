"""Telling the store what this process has accepted: "of this app, up to this stamp, n messages" (rule 26).

Enter by ``Accepting``: it takes a process number at the first message, stamps and counts with an ``Acceptor``, and has
a thread that writes what changed every ``ANNOUNCE_S``, and once more at the end. An announcement that fails is repeated
with the newest counts, and so is, now and then, one that is not settled yet: its process lives. No push ever waits. A
new number is taken, and the old process announced as ended, when something that was stamped is lost to this process
(``retire``); and when one process has counted too many apps.

Nothing here decides what is settled: that is the keeper's, who reads these rows.
"""

import logging
import threading

from ingest.accept.stamper import Acceptor, Count, take_process
from spm import limits
from spm.clock import Clock
from spm.errors import StoreUnavailable
from spm.store.backends.base import Backend
from spm.store.ledger import watermarks
from spm.store.ledger.watermarks import Announcement
from spm.wire import Envelope, Parsed

log = logging.getLogger(__name__)


class Accepting:
    """Stamps messages in the name of this process, and tells the store how many. Thread-safe.

    ``every_s``: seconds between two announcements; ``None``: only ``announce`` and ``close`` make them.
    """

    def __init__(self, backend: Backend, clock: Clock, *, every_s: float | None = limits.ANNOUNCE_S) -> None:
        self._backend, self._clock, self._every_s = backend, clock, every_s
        self._lock = threading.Lock()
        self._current: Acceptor | None = None
        self._acceptors: dict[int, Acceptor] = {}  # by process number: the current one, and those with news
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="announcer", daemon=True)
        self._doubtful: dict[int, set[int]] = {}  # process → apps of which not all that was told is settled yet
        self._failing = False
        self._rounds = 0

    def accept(self, *, app: int, source: str, parsed: Parsed, message_id: bytes) -> Envelope:
        """The stamped envelope of a parsed body; ``BadMessage``, or ``StoreUnavailable`` without a process number."""
        with self._lock:  # a process that is retired meanwhile must not stamp
            return self._acceptor(app).accept(app=app, source=source, parsed=parsed, message_id=message_id)

    def settled(self, envelope: Envelope) -> None:
        """The queue or the store has this message."""
        acceptor = self._acceptors.get(envelope.stamp.process)
        if acceptor is not None:
            acceptor.settled(envelope)

    def retire(self) -> None:
        """Something that was stamped will not be settled by this process: the next message gets another one's stamp."""
        with self._lock:
            if self._current is not None:
                self._current.retire()
                self._current = None

    def announce(self) -> None:
        """Write what changed, of a bounded number of apps; what cannot be written now is written later."""
        self._rounds += 1
        for acceptor in list(self._acceptors.values()):
            if acceptor is not self._current and acceptor.idle() and not acceptor.retired:
                acceptor.retire()
            if self._rounds % limits.ANNOUNCE_ALIVE_ROUNDS == 0:
                acceptor.tell_again(self._doubtful.pop(acceptor.process, ()))
            if self._tell(acceptor, limits.ANNOUNCE_APPS_AT_ONCE) and acceptor.retired and not acceptor.has_news():
                self._acceptors.pop(acceptor.process, None)
                self._doubtful.pop(acceptor.process, None)

    def close(self) -> None:
        """Accept no more, and have the last word, if the store hears it within ``ANNOUNCE_STOP_S``."""
        self.retire()
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(limits.ANNOUNCE_STOP_S)
        else:
            self._say_all()

    def _acceptor(self, app: int) -> Acceptor:
        if self._stopping.is_set():
            raise StoreUnavailable("this process is about to end")
        if self._current is None or not self._current.takes(app):
            self._current = Acceptor(take_process(self._backend), self._clock)
            self._acceptors[self._current.process] = self._current
            if self._every_s is not None and not self._thread.is_alive():
                self._thread.start()
        return self._current

    def _run(self) -> None:
        while not self._stopping.wait(self._every_s):
            try:
                self.announce()
            except Exception:  # this thread is the process' only voice
                log.exception("an announcement failed in an unforeseen way")
        self._say_all()

    def _say_all(self) -> None:
        for acceptor in list(self._acceptors.values()):
            acceptor.retire()
            self._tell(acceptor, limits.ACCEPT_APPS_MAX)

    def _tell(self, acceptor: Acceptor, most: int) -> bool:
        """Write some of its news; whether the store took them."""
        news = acceptor.take_news(most)
        for place, (app, count) in enumerate(news):
            try:
                held = watermarks.announce(self._backend, app, acceptor.process, self._word(count, acceptor.retired))
            except StoreUnavailable as error:
                acceptor.tell_again(app for app, _ in news[place:])
                if not self._failing:
                    log.warning("what was accepted cannot be announced now: %s", error)
                self._failing = True
                return False
            if not held:
                self._doubtful.setdefault(acceptor.process, set()).add(app)
        self._failing = self._failing and not news
        return True

    def _word(self, count: Count, ended: bool) -> Announcement:
        return Announcement(
            ms=count.last.ms,
            sequence=count.last.sequence,
            messages=count.messages,
            samples=count.samples,
            rejected=count.rejected,
            open_messages=count.open_messages,
            open_samples=count.open_samples,
            at_ms=self._clock.now_ms(),
            ended=ended,
        )
