"""Notes what people see of messages: sources, ways of arrival, rejections, descriptions, exemplars. In memory only.

Enter by ``record_accepted`` and ``record_rejected_body``. Both are called for every message, by the event loop, too:
they compare it with what this process noted before, put what is new into bounded queues, and never wait. The process's
note writer writes it within a second or two (``spm.accounts.note_writer``).

A source and a way are noted at most once in ``SOURCE_SEEN_EVERY_MS`` by each process. A broken sender may cause a
thousand rejections a second: beyond a few messages per app and ten seconds a process drops the texts; the counts are in
every answer. Descriptions that senders repeat (Prometheus does each minute) cost nothing; an app that sends new ones
with every message is throttled, too, and one that is dropped then is noted when it is sent again.
"""

import os
import threading
from collections.abc import Sequence
from itertools import count

from ingest.accept import arrivals, descriptions, rejections
from ingest.accept.arrivals import WayArrivals
from ingest.accept.identity import Sender
from ingest.accept.rejections import RejectionNote
from ingest.exemplars.limits import EXEMPLARS_WAITING_APP_MAX
from ingest.exemplars.storage import ExemplarNote, ExemplarWriter, newer_exemplar
from spm import telemetry
from spm.accounts import sources
from spm.accounts.note_writer import NoteQueue, NoteWriter, process_writer
from spm.accounts.sources import OTHER_SOURCES, SYSTEM_SOURCE, Seen
from spm.bounded import LruCache
from spm.errors import Explained
from spm.limits import (
    METADATA_APP_MAX,
    METADATA_KNOWN_MAX,
    REJECTION_NOTES_MAX,
    REJECTION_NOTES_PER_MS,
    REJECTIONS_KEPT_MAX,
    SOURCE_SEEN_EVERY_MS,
    SOURCES_PER_APP_MAX,
    SOURCES_SEEN_MAX,
    WAYS_PER_APP_MAX,
)
from spm.wire import Exemplar, Metadata, Parsed, Rejection

_PRUNE_EVERY_MS = 1_000  # of an app whose sources are many: forgetting those of long ago takes a millisecond


class ActivityRecorder:
    """Compares messages with what was noted before, and puts what is new into the queues of a writer. Thread-safe."""

    def __init__(self, writer: NoteWriter) -> None:
        self._writer = writer
        seen: NoteQueue[str, tuple[Seen, ...]] = NoteQueue(
            "sources", sources.merge_seen, app_max=SOURCES_PER_APP_MAX + 1
        )
        ways: NoteQueue[str, WayArrivals] = NoteQueue("arrivals", arrivals.merge_arrivals, app_max=WAYS_PER_APP_MAX)
        rejected: NoteQueue[int, RejectionNote] = NoteQueue(
            "rejections", rejections.newer_rejection, app_max=REJECTIONS_KEPT_MAX, keep_newest=True
        )
        described: NoteQueue[str, Metadata] = NoteQueue(
            "descriptions", descriptions.newer_description, app_max=METADATA_APP_MAX
        )
        exemplars: NoteQueue[Exemplar, ExemplarNote] = NoteQueue(
            "exemplars", newer_exemplar, app_max=EXEMPLARS_WAITING_APP_MAX, keep_newest=True
        )
        self._sources = writer.add_queue(seen, sources.write_seen)
        self._ways = writer.add_queue(ways, arrivals.write_arrivals)
        self._rejections = writer.add_queue(rejected, rejections.write_rejections)
        self._descriptions = writer.add_queue(described, descriptions.write_descriptions)
        self._exemplars = writer.add_queue(exemplars, ExemplarWriter().write)
        self.forget()

    def forget(self) -> None:
        """Forget what was noted before, as a child process must that was forked."""
        self._lock = threading.Lock()
        self._apps: dict[int, _AppMemory] = {}
        self._count = 0  # of apps, and of their sources and ways
        self._known: LruCache[tuple[int, str], Metadata] = LruCache(METADATA_KNOWN_MAX)  # by app and metric
        self._numbers = count()

    def record_accepted(self, parsed: Parsed, sender: Sender, now_ms: int, stamp_ms: int | None = None) -> None:
        """Record a message that was accepted, in whole or in part; ``stamp_ms``: of its stamp, if it has one."""
        app = self._apps.get(sender.app_id)
        if app is None:
            app = self._add_app(sender.app_id)
        has_news = False
        if len(parsed.ts):
            last_ms = app.sources.get(sender.source)
            if last_ms is None or not 0 <= now_ms - last_ms < SOURCE_SEEN_EVERY_MS:
                has_news = self._note_source(app, sender, now_ms)
            last_ms = app.ways.get(sender.way)
            if last_ms is None or not 0 <= now_ms - last_ms < SOURCE_SEEN_EVERY_MS:
                has_news |= self._note_way(app, sender, now_ms)
        if parsed.rejected:
            telemetry.REJECTED_LINES.inc(parsed.rejected)
        if parsed.rejections:
            has_news |= self._note_rejections(app, sender, parsed.rejections, now_ms)
        if parsed.metadata:
            has_news |= self._note_descriptions(app, parsed.metadata, now_ms)
        if parsed.exemplars:
            accepted_ms = now_ms if stamp_ms is None else stamp_ms
            for one in parsed.exemplars:
                self._exemplars.put(app.app_id, one, ExemplarNote(one, accepted_ms, sender.source))
            has_news = True
        if has_news:
            self._writer.wake()

    def record_rejected_body(self, error: Explained, sender: Sender, now_ms: int) -> None:
        """Record a body that was rejected as a whole, as one rejection."""
        telemetry.REJECTED_LINES.inc()
        app = self._apps.get(sender.app_id)
        if app is None:
            app = self._add_app(sender.app_id)
        if self._note_rejections(app, sender, [Rejection(0, str(error)[:300], "")], now_ms):
            self._writer.wake()

    def _add_app(self, app_id: int) -> "_AppMemory":
        with self._lock:
            if app_id not in self._apps:
                self._apps[app_id] = _AppMemory(app_id)
                self._count += 1
            return self._apps[app_id]

    def _note_source(self, app: "_AppMemory", sender: Sender, now_ms: int) -> bool:
        with self._lock:
            name, period_ms = sender.source, sender.period_ms
            if name not in app.sources and self._is_full(app, now_ms):
                name, period_ms = OTHER_SOURCES, 0
                if 0 <= now_ms - app.sources.get(name, now_ms + 1) < SOURCE_SEEN_EVERY_MS:
                    return False
            is_news = name != SYSTEM_SOURCE
            if is_news and not self._sources.put(app.app_id, name, ((now_ms, period_ms),)):
                return False
            self._remember(app, app.sources, name, now_ms)
            return is_news

    def _note_way(self, app: "_AppMemory", sender: Sender, now_ms: int) -> bool:
        with self._lock:
            is_news = sender.way != ""
            arrival = WayArrivals(now_ms, now_ms, sender.source)
            if is_news and not self._ways.put(app.app_id, sender.way, arrival):
                return False
            self._remember(app, app.ways, sender.way, now_ms)
            return is_news

    def _note_rejections(self, app: "_AppMemory", sender: Sender, rejected: Sequence[Rejection], now_ms: int) -> bool:
        if not app.rejections.allows(now_ms):
            self._rejections.drop(len(rejected))
            return False
        for one in rejected:
            note = RejectionNote(now_ms, sender.source, sender.way, one)
            self._rejections.put(app.app_id, next(self._numbers), note)
        return True

    def _note_descriptions(self, app: "_AppMemory", described: Sequence[Metadata], now_ms: int) -> bool:
        known = self._known.get_many([(app.app_id, one.metric) for one in described])
        news = {one.metric: one for one, before in zip(described, known, strict=True) if one != before}
        if not news or not app.descriptions.allows(now_ms):
            return False
        with self._lock:
            queued = [one for metric, one in news.items() if self._descriptions.put(app.app_id, metric, one)]
            self._known.put_many(((app.app_id, one.metric), one, 1) for one in queued)
        return bool(queued)

    def _is_full(self, app: "_AppMemory", now_ms: int) -> bool:
        """Whether as many sources of an app were noted lately as an app may have."""
        if len(app.sources) >= SOURCES_PER_APP_MAX and not 0 <= now_ms - app.pruned_ms < _PRUNE_EVERY_MS:
            app.pruned_ms = now_ms
            self._count -= app.prune(now_ms)
        return len(app.sources) >= SOURCES_PER_APP_MAX

    def _remember(self, app: "_AppMemory", names: dict[str, int], name: str, now_ms: int) -> None:
        if name not in names:
            self._count += 1
        names[name] = now_ms
        if self._count > SOURCES_SEEN_MAX:
            self._shrink(app, now_ms)

    def _shrink(self, user: "_AppMemory", now_ms: int) -> None:
        """Forget what was not noted lately; if that is little, forget all, so that this is seldom needed."""
        for app in self._apps.values():
            app.prune(now_ms)
        if sum(app.size() for app in self._apps.values()) > SOURCES_SEEN_MAX // 2:
            for app in self._apps.values():
                app.sources.clear()
                app.ways.clear()
        self._apps = {app.app_id: app for app in self._apps.values() if app.size() or app is user}
        self._count = sum(app.size() + 1 for app in self._apps.values())


class WriteThrottle:
    """Bounds how often an app may cause database writes for remarks about its messages, by this process."""

    __slots__ = ("_interval", "_writes")

    def __init__(self) -> None:
        self._interval, self._writes = 0, 0

    def allows(self, now_ms: int) -> bool:
        """Count one write and return whether the app may do it now."""
        interval = now_ms // REJECTION_NOTES_PER_MS
        if interval != self._interval:
            self._interval, self._writes = interval, 0
        self._writes += 1
        return self._writes <= REJECTION_NOTES_MAX


class _AppMemory:
    """What was noted of one app: the ms of the last note by source and by way, and its throttles."""

    __slots__ = ("app_id", "descriptions", "pruned_ms", "rejections", "sources", "ways")

    def __init__(self, app_id: int) -> None:
        self.app_id = app_id
        self.sources: dict[str, int] = {}
        self.ways: dict[str, int] = {}
        self.rejections, self.descriptions = WriteThrottle(), WriteThrottle()
        self.pruned_ms = 0

    def size(self) -> int:
        """How many sources and ways it holds."""
        return len(self.sources) + len(self.ways)

    def prune(self, now_ms: int) -> int:
        """Forget sources and ways that may be noted again; return how many."""
        before = self.size()
        for names in (self.sources, self.ways):
            for name in [name for name, ms in names.items() if not 0 <= now_ms - ms < SOURCE_SEEN_EVERY_MS]:
                del names[name]
        return before - self.size()


process_recorder = ActivityRecorder(process_writer)
record_accepted = process_recorder.record_accepted
record_rejected_body = process_recorder.record_rejected_body
os.register_at_fork(after_in_child=process_recorder.forget)
