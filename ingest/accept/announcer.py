"""Announces to the store what this process has accepted: "of this app, up to this stamp, n messages" (PROTOCOL 26).

Enter by ``StampAnnouncer``. It takes a process number with the first message, stamps and counts with a ``Stamper``, and
has a thread that writes the changed counts every ``ANNOUNCE_S``, and once more at the end. An announcement that fails
is repeated with the newest counts. One that is not settled yet is repeated now and then, to show that its process
lives. Accepting never waits for an announcement. After each time it puts its round, from which judges of rules know how
far the announcements have come. A clock that fell back leaves stamps ahead of it: the stamp floor tells all processes.

Messages with samples of long ago are stamped under a number of their own. They may wait for long before they are
stored, and hold back its watermark, but not that of live messages. This number has no round, so judges of rules do not
wait for it: what becomes known of it is late data. Stamps of both numbers follow the order of acceptance, for which
each change of the number takes a millisecond. Where that would bring stamps far ahead of the clock, the number of live
messages stamps all.

The announcer takes a new process number and announces the old one as ended when the outcome of a stamped message is
unknown to this process (``retire``), and when one process number has counted too many apps. It never decides what is
settled: the watermark keeper does, which reads these rows.
"""

import logging
import threading
from collections.abc import Sequence
from contextlib import suppress

from ingest.accept.stamper import AppCount, Stamper, take_process
from ingest.transport.limits import PAST_AHEAD_MS, PAST_IDLE_ROUNDS, PAST_NUMBER_ROUNDS
from ingest.transport.past import has_past
from spm import limits
from spm.clock import Clock
from spm.errors import StoreUnavailable
from spm.store.backends.base import Backend
from spm.store.ledger import rounds, stamp_floor, watermarks
from spm.store.ledger.rounds import Round
from spm.store.ledger.watermarks import Announcement
from spm.wire import Envelope, Parsed

log = logging.getLogger(__name__)


class StampAnnouncer:
    """Stamps messages for this process, and announces their counts to the store. Thread-safe.

    ``every_s`` is the time between two announcements; with ``None`` only ``announce`` and ``close`` make them.
    """

    def __init__(self, backend: Backend, clock: Clock, *, every_s: float | None = limits.ANNOUNCE_S) -> None:
        self._backend, self._clock, self._every_s = backend, clock, every_s
        self._lock = threading.Lock()
        self._live: Stamper | None = None
        self._past: Stamper | None = None  # of messages with samples of long ago
        self._past_begun = self._past_used = 0  # the rounds in which it began, and was last used
        self._stampers: dict[int, Stamper] = {}  # by process number: the current ones, and those with changes
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="announcer", daemon=True)
        self._unsettled: dict[int, set[int]] = {}  # process → apps of which the last announcement is not settled yet
        self._failing = False
        self._rounds = 0

    def stamp_message(self, *, app: int, source: str, parsed: Parsed, message_id: bytes) -> Envelope:
        """Return the stamped envelope of a parsed body.

        Raises ``BadMessage``, or ``StoreUnavailable`` when no process number can be taken.
        """
        with self._lock:  # a stamper that is retired meanwhile must not stamp
            stamper = self._stamper(app, parsed)
            return stamper.stamp_message(app=app, source=source, parsed=parsed, message_id=message_id)

    def confirm(self, envelope: Envelope) -> None:
        """Close a message that the queue or the store has."""
        stamper = self._stampers.get(envelope.stamp.process)
        if stamper is not None:
            stamper.confirm(envelope)

    def retire(self) -> None:
        """Retire the process numbers: a stamped message will not be confirmed by this process."""
        with self._lock:
            for stamper in (self._live, self._past):
                if stamper is not None:
                    stamper.retire()
            self._live = self._past = None

    def announce(self) -> None:
        """Write the changed counts of a bounded number of apps; what cannot be written now is written later."""
        self._rounds += 1
        self._share_floor()
        self._drop_idle_past()
        for stamper in list(self._stampers.values()):
            if stamper not in (self._live, self._past) and stamper.is_idle() and not stamper.retired:
                stamper.retire()
            if self._rounds % limits.ANNOUNCE_ALIVE_ROUNDS == 0:
                stamper.announce_again(self._unsettled.pop(stamper.process, ()))
            if self._round(stamper, limits.ANNOUNCE_APPS_AT_ONCE) and stamper.retired and not stamper.has_changes():
                self._stampers.pop(stamper.process, None)
                self._unsettled.pop(stamper.process, None)

    def _share_floor(self) -> None:
        """Stamp above what others were ahead, and say so of ourselves; what fails now is done by the next round."""
        stampers = [stamper for stamper in (self._live, self._past) if stamper is not None]
        if not stampers:
            return
        with suppress(StoreUnavailable):
            floor_ms = stamp_floor.read(self._backend)
            for stamper in stampers:
                stamper.lift(floor_ms)
                last = stamper.last_stamp
                has_stamped = (last.ms, last.sequence) != (floor_ms, 0)
                if has_stamped and last.ms > self._clock.now_ms() + limits.STAMP_AHEAD_MS:
                    stamp_floor.lift(self._backend, last.ms + 1)
                    stamper.lift(last.ms + 1)

    def close(self) -> None:
        """Stamp no more, and announce the final counts if the store takes them within ``ANNOUNCE_STOP_S``."""
        self.retire()
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(limits.ANNOUNCE_STOP_S)
        else:
            self._announce_final()

    def _drop_idle_past(self) -> None:
        """Use another number for the next message of the past, if the last one was long ago, or the first one.

        The watermark of a number under which an app sends no more says nothing of newer stamps: answers as of a time
        would rest on samples where rollup rows do (``WatermarkVector.complete_to_ms``).
        """
        with self._lock:
            is_idle = self._rounds - self._past_used > PAST_IDLE_ROUNDS
            if is_idle or self._rounds - self._past_begun > PAST_NUMBER_ROUNDS:
                self._past = None

    def _stamper(self, app: int, parsed: Parsed) -> Stamper:
        """Return what stamps a message now; its next stamp wins over all that this process has given."""
        if self._stopping.is_set():
            raise StoreUnavailable("this process is about to end")
        live, past = self._live or self._begin(), self._past
        next_ms = live.next_ms()
        if has_past(parsed.ts, next_ms) and next_ms - self._clock.now_ms() < PAST_AHEAD_MS:
            if past is None or not past.can_count(app):
                past = self._begin_past()
            self._past_used = self._rounds
            past.follow(live)
            return past
        if not live.can_count(app):
            live = self._begin()
        if past is not None:
            live.follow(past)
        return live

    def _begin(self) -> Stamper:
        """Take a number for live messages, and put its first round."""
        stamper = self._take_number(past=False)
        rounds.put(self._backend, Round(stamper.process, self._rounds, self._clock.now_ms()))
        self._live = self._stampers[stamper.process] = stamper
        if self._every_s is not None and not self._thread.is_alive():
            self._thread.start()
        return stamper

    def _begin_past(self) -> Stamper:
        self._past = stamper = self._take_number(past=True)
        self._past_begun = self._rounds
        self._stampers[stamper.process] = stamper
        return stamper

    def _take_number(self, *, past: bool) -> Stamper:
        process = take_process(self._backend)
        floor_ms = stamp_floor.of_new_process(self._backend, self._clock.now_ms())
        return Stamper(process, self._clock, floor_ms, past=past)

    def _run(self) -> None:
        while not self._stopping.wait(self._every_s):
            try:
                self.announce()
            except Exception:  # nothing else in this process announces
                log.exception("an announcement failed unexpectedly")
        self._announce_final()

    def _announce_final(self) -> None:
        for stamper in list(self._stampers.values()):
            stamper.retire()
            self._round(stamper, limits.ACCEPT_APPS_MAX)

    def _round(self, stamper: Stamper, most: int) -> bool:
        """Write at most so many of its changes, and which apps had to wait; return whether the store took them."""
        waiting, changes = set(stamper.changed_apps()), stamper.take_changes(most)
        is_written = self._write(stamper, changes)
        if is_written and not stamper.past:
            unannounced = tuple(sorted(waiting.difference(app for app, _ in changes)))
            ended = stamper.retired and not unannounced
            with suppress(StoreUnavailable):  # the next round says so
                rounds.put(
                    self._backend, Round(stamper.process, self._rounds, self._clock.now_ms(), unannounced, ended)
                )
        return is_written

    def _write(self, stamper: Stamper, changes: Sequence[tuple[int, AppCount]]) -> bool:
        """Write changes; return whether the store took them all."""
        for place, (app, count) in enumerate(changes):
            announcement = self._announcement(count, stamper.retired)
            try:
                settled = watermarks.announce(self._backend, app, stamper.process, announcement)
            except StoreUnavailable as error:
                stamper.announce_again(app for app, _ in changes[place:])
                if not self._failing:
                    log.warning("accepted messages cannot be announced now: %s", error)
                self._failing = True
                return False
            if not settled:
                self._unsettled.setdefault(stamper.process, set()).add(app)
        self._failing = self._failing and not changes
        return True

    def _announcement(self, count: AppCount, ended: bool) -> Announcement:
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
