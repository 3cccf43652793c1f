"""Writes what there is to note about messages and tokens once a second, in one transaction, off the path of requests.

A note is a small fact that people see later: a source was seen, data came by this way, a line was rejected. Code that
notes something puts it into a ``NoteQueue``, which is memory only, and calls ``wake``. A thread takes what waits in all
queues, at most ``NOTES_ROUND_MAX`` of a kind and in fair shares by app, and writes it. A process that is killed loses
the notes of about a second, and no sample. Notes wait in bounded memory while the database fails, and are then written.

Enter by ``process_writer``, the one writer of this process, and its ``add_queue``.
"""

import atexit
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from itertools import islice
from typing import Any, Generic, TypeVar

from django.db import DatabaseError, InterfaceError, OperationalError, close_old_connections, connection, transaction

from spm import limits, telemetry
from spm.accounts.models import App
from spm.clock import Clock, SystemClock

K = TypeVar("K", bound=Hashable)
N = TypeVar("N")
Write = Callable[[Mapping[int, Mapping[K, N]]], None]  # by app, then by key; within a transaction
_LOG = logging.getLogger(__name__)


class NoteQueue(Generic[K, N]):
    """Notes of one kind that wait for their write: at most one for each app and key, in the order of keys. Thread-safe.

    ``merge`` joins an older and a newer note of one key to what both say. An app has at most ``app_max`` keys, and
    ``NOTES_APP_MIN`` while more than ``count_max`` wait in all. What is beyond is dropped and counted: the new note, or
    the oldest ones with ``keep_newest``.
    """

    def __init__(
        self,
        kind: str,
        merge: Callable[[N, N], N],
        *,
        app_max: int,
        count_max: int = limits.NOTES_WAITING_MAX,
        keep_newest: bool = False,
    ) -> None:
        self.kind = kind
        self._merge, self._app_max, self._count_max, self._keep_newest = merge, app_max, count_max, keep_newest
        self._dropped = telemetry.NOTES_DROPPED.labels(kind)
        self.reset()

    def reset(self) -> None:
        """Forget all notes, also in a child process that was forked while another thread used the queue."""
        self._lock = threading.Lock()
        self._apps: dict[int, OrderedDict[K, N]] = {}  # those that wait longest come first
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, app_id: int, key: K, note: N) -> bool:
        """Let a note wait; return False if there is no room for it."""
        with self._lock:
            notes = self._apps.get(app_id)
            if notes is None:
                notes = self._apps[app_id] = OrderedDict()
            if key in notes:
                notes[key] = self._merge(notes[key], note)
                return True
            is_full = self._count >= self._count_max and len(notes) >= limits.NOTES_APP_MIN
            if is_full or len(notes) >= self._app_max:
                self._dropped.inc()
                if not self._keep_newest:
                    return False
                notes.popitem(last=False)
                self._count -= 1
            notes[key] = note
            self._count += 1
            return True

    def drop(self, count: int) -> None:
        """Count notes that are not put."""
        self._dropped.inc(count)

    def take(self, count_max: int) -> dict[int, OrderedDict[K, N]]:
        """Take at most so many notes: all of apps with few, equal shares of the others."""
        with self._lock:
            apps = sorted(islice(self._apps, count_max), key=lambda app: len(self._apps[app]))
            batch: dict[int, OrderedDict[K, N]] = {}
            room = count_max
            for place, app in enumerate(apps):
                notes = self._apps.pop(app)
                share = room // (len(apps) - place)
                batch[app] = notes
                if len(notes) > share:
                    batch[app] = OrderedDict(notes.popitem(last=False) for _ in range(share))
                    self._apps[app] = notes  # behind those that did not get their turn
                room -= len(batch[app])
            self._count -= count_max - room
            return batch

    def give_back(self, batch: Mapping[int, OrderedDict[K, N]]) -> None:
        """Let notes that could not be written wait again, as the oldest ones."""
        with self._lock:
            for app, notes in batch.items():
                newer: OrderedDict[K, N] = self._apps.pop(app, OrderedDict())
                for key, note in newer.items():
                    notes[key] = self._merge(notes[key], note) if key in notes else note
                while self._keep_newest and len(notes) > self._app_max:
                    notes.popitem(last=False)
                    self._dropped.inc()
                self._count += len(notes) - len(newer)
            self._apps = {**batch, **self._apps}


class NoteWriter:
    """Writes the notes of its queues, by ``flush`` or in a thread of its own. Thread-safe.

    The thread begins with the first ``wake``. It writes at once, and later once in ``every_s``, or more often while
    more waits than one round takes. A database that cannot be used is tried again with growing pauses; a note that it
    refuses is dropped with the others of its app and round.
    """

    def __init__(self, clock: Clock, *, every_s: float = limits.NOTES_EVERY_S) -> None:
        self._clock, self._every_s = clock, every_s
        self._queues: list[tuple[NoteQueue[Any, Any], Write[Any, Any]]] = []
        self.reset()

    def reset(self) -> None:
        """Forget all notes and the thread: a child process that was forked has neither."""
        self._writing, self._starting = threading.Lock(), threading.Lock()
        self._due, self._stopping = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._holder = 0  # the thread that forks just now
        self._failures = 0
        for queue, _ in self._queues:
            queue.reset()

    def add_queue(self, queue: NoteQueue[K, N], write: Write[K, N]) -> NoteQueue[K, N]:
        """Write the notes of this queue, too; two processes lock rows in one order, since kinds are sorted."""
        self._queues.append((queue, write))
        self._queues.sort(key=lambda entry: entry[0].kind)
        return queue

    def wake(self) -> None:
        """Have the notes written that wait, soon and by the thread."""
        self._due.set()
        if self._thread is None:
            with self._starting:
                if self._thread is None and not self._stopping.is_set():
                    self._thread = threading.Thread(target=self._run, name="note writer", daemon=True)
                    self._thread.start()

    def flush(self) -> bool:
        """Write all notes that wait now, in the calling thread; return False if the database cannot be used."""
        rounds = max((len(queue) for queue, _ in self._queues), default=0) // limits.NOTES_ROUND_MAX + 1
        return all(self.write_round() for _ in range(rounds))

    def write_round(self) -> bool:
        """Write a bounded number of notes; return False if the database cannot be used and they wait again."""
        with self._writing:
            return self._round()

    def close(self) -> None:
        """Let the thread write all notes that wait, and wait for it, at most ``NOTES_STOP_S``."""
        self._stopping.set()
        self._due.set()
        if self._thread is not None:
            self._thread.join(limits.NOTES_STOP_S)

    def hold(self) -> None:
        """Before a fork: wait until no round runs, at most ``NOTES_STOP_S``, and let none begin.

        A child process would inherit the locks of SQLite's library as the thread of the round holds them, for ever.
        """
        if self._writing.acquire(timeout=limits.NOTES_STOP_S):
            self._holder = threading.get_ident()

    def release(self) -> None:
        """After a fork: let rounds begin again."""
        if self._holder == threading.get_ident():
            self._holder = 0
            self._writing.release()

    def _round(self) -> bool:
        batches = [queue.take(limits.NOTES_ROUND_MAX) for queue, _ in self._queues]
        apps = sorted({app for batch in batches for app in batch})
        try:
            self._write(apps, batches)
        except (OperationalError, InterfaceError) as error:
            for (queue, _), batch in zip(self._queues, batches, strict=True):
                queue.give_back(batch)
            if not self._failures:
                _LOG.warning("what is to note about messages cannot be written now: %s", error)
            self._failures += 1
            return False
        if self._failures and apps:
            _LOG.info("what is to note about messages is written again, after %d failures", self._failures)
            self._failures = 0
        return True

    def _write(self, apps: list[int], batches: list[dict[int, OrderedDict[Any, Any]]]) -> None:
        """Write the notes of these apps in one transaction, and take them out of the batches.

        Notes of an app that was deleted are for nobody. If the database refuses some, only their app's are dropped.
        """
        if not apps:
            return
        try:
            with transaction.atomic():
                existing = set(App.objects.filter(pk__in=apps).order_by().values_list("pk", flat=True))
                for (_, write), batch in zip(self._queues, batches, strict=True):
                    if notes := {app: batch[app] for app in apps if app in batch and app in existing}:
                        write(notes)
        except (OperationalError, InterfaceError):
            raise
        except (DatabaseError, ValueError):
            if len(apps) > 1:
                middle = len(apps) // 2
                self._write(apps[:middle], batches)
                self._write(apps[middle:], batches)
                return
            _LOG.exception("what is to note about messages of app %d cannot be written", apps[0])
        for batch in batches:
            for app in apps:
                batch.pop(app, None)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._due.wait()
            self._due.clear()
            with self._writing:
                try:
                    close_old_connections()  # no request ends here, after which Django would do it
                    self._round()
                    close_old_connections()
                except Exception:  # nothing else in this process writes notes
                    _LOG.exception("writing what is to note about messages failed unexpectedly")
            waiting = max(len(queue) for queue, _ in self._queues)
            if waiting:
                self._due.set()
            self._stopping.wait(pause_s(self._every_s, self._failures, waiting))
        self.flush()
        with self._writing:
            connection.close()


def pause_s(every_s: float, failures: int, waiting: int) -> float:
    """The seconds from one round to the next, after so many failures in a row; ``waiting``: notes of one kind."""
    if not failures and waiting >= limits.NOTES_ROUND_MAX:
        return min(every_s, limits.NOTES_BEHIND_S)
    return min(every_s * 2.0 ** min(failures, 10), max(every_s, limits.NOTES_BACK_OFF_MAX_S))


process_writer = NoteWriter(SystemClock())
atexit.register(process_writer.close)
os.register_at_fork(
    before=process_writer.hold, after_in_parent=process_writer.release, after_in_child=process_writer.reset
)
