"""What a reading process remembers of one app, and the consistent views that its queries get.

It remembers the series index, the merged tail, the placement table and the retractions; decoded rows are in a cache
that all apps share. The owner hears how many bytes index and tail take. ``AppState.view`` makes the view of one read in
the order of PROTOCOL 9: retractions once, the placement, pending records, THEN manifests. The placement is read once
more after the manifests: if it has changed, a metric might lie in a shard that was not read, and the read starts again.
Enter by ``AppState.view``.
"""

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import NoReturn

from spm import limits
from spm.bounded import LruCache
from spm.clock import Clock
from spm.errors import NotInMemory, QueryTooLarge
from spm.fast_dataclass import dataclass
from spm.limits import DAY_HOURS, HOUR_MS
from spm.query.request import limits as light_limits
from spm.query.request.batches import DeadlineCheck
from spm.query.request.provenance import ProvenanceBuilder, moment
from spm.query.series.index import SeriesIndex, SeriesSelection
from spm.query.view.decoded_rows import DecodedRows, MonthManifests, PageCache
from spm.query.view.tail import Tail, TailView
from spm.query.view.view import OutdatedView, ReadRequest, View
from spm.store import epochs, keys
from spm.store.backends.base import Backend, Reader, scan_ranges, version_of
from spm.store.keys import PlacementTable
from spm.store.ledger import watermarks
from spm.store.ledger.watermarks import ProcessWatermarks, WatermarkVector
from spm.store.manifest import Manifest
from spm.store.matchers import Matcher
from spm.store.versions import retractions
from spm.store.versions.knowledge import Knowledge
from spm.store.versions.quarantine import Quarantine
from spm.store.versions.retractions import Retraction
from spm.store.versions.visibility import Pairs, Visibility

_AHEAD_HOURS = limits.FUTURE_MS // HOUR_MS + 1  # nothing is accepted further ahead
_DAY_MS = DAY_HOURS * HOUR_MS
_UNSET = PlacementTable()
_TAIL_SHARDS_AT_ONCE = 24  # hour-shards of the tail that are read between two looks at the deadline
_MANIFESTS_READ_MAX = 8  # ranges of days: the panels of a page have few
_SELECTION_BYTES, _SELECTED_BYTES = 3_000, 600  # of a selection, and of each of its series, with their labels


class _MemoryReader:
    """In place of a reader of this version: whatever is to be read raises ``NotInMemory``."""

    __slots__ = ("version",)

    def __init__(self, version: int) -> None:
        self.version = version

    def get(self, table: str, keys: object, columns: object = None) -> NoReturn:
        """Read no rows."""
        raise NotInMemory(f"a row of {table}")

    def scan(self, table: str, start: bytes, stop: bytes, **_: object) -> NoReturn:
        """Read no rows."""
        raise NotInMemory(f"rows of {table}")


@dataclass(frozen=True, slots=True)
class _ManifestsRead:
    """The manifests of some days, as they were read last."""

    version: int | None  # of the store at that time
    placement: PlacementTable  # under which they were read
    manifests: Mapping[int, Manifest]


def _known_version(reader: Reader) -> int:
    """The version of a reader; raises ``NotInMemory`` if it has none."""
    version = version_of(reader)
    if version is None:
        raise NotInMemory("a store without versions")
    return version


class AppState:
    """What one process remembers of one app. Thread-safe; callers that select from ``index`` hold ``lock``."""

    def __init__(
        self,
        backend: Backend,
        app: int,
        default: PlacementTable,
        clock: Clock,
        cache: PageCache,
        note_bytes: Callable[[int], object] = lambda _: None,
    ) -> None:
        self.app, self.clock, self.lock = app, clock, threading.RLock()
        self._note_bytes, self._noted_bytes = note_bytes, 0
        self.quarantine = Quarantine(backend, clock)
        self.rows = DecodedRows(app, cache, self.quarantine)
        self.index = SeriesIndex(app, lambda key, raw, error: self.quarantine.report(app, "series", key, raw, error))
        self._backend, self._default_placement, self._placement = backend, default, default
        self.tail = Tail(app, default.all_shards(app), clock, self.rows.log)
        self._listings_named = 0  # of the tail when all series were read
        self._nonces: dict[int, int] = {}
        self._manifests_read: LruCache[range, _ManifestsRead] = LruCache(
            limits.QUERY_DAYS_MAX, count_max=_MANIFESTS_READ_MAX
        )  # by days
        self._retraction_cells: list[bytes] = []  # of the retractions last read
        self._retractions_version: int | None = None  # the store's version at that time
        self._retractions: tuple[Retraction, ...] = ()
        self._selections: LruCache[tuple[Matcher, ...], tuple[int, SeriesSelection]] = LruCache(
            light_limits.SELECTIONS_BYTES_MAX
        )
        self._retracted_series: dict[int, tuple[int, Pairs]] = {}  # retraction -> (series known then, those it selects)

    @contextmanager
    def view(self, request: ReadRequest, *, force: bool) -> Iterator[View]:
        """A consistent view for a request; raises ``OutdatedView`` when none can be made now: then try again.

        The snapshot is taken under the lock: one taken before might be older than the tail that another query has just
        refreshed, and a manifest must never be older than the pending records it is used with.

        A view in memory is made of what is known already. Where the store was written since, it looks whether the few
        rows are still the same that each view reads: those are mapped memory, and were read within the tail's age.
        """
        in_memory = request.in_memory
        with ExitStack() as stack:
            with self._locked(waits=not in_memory):
                reader: Reader = stack.enter_context(self._backend.snapshot())
                retractions_of_app = self._read_retractions(reader, in_memory=in_memory)
                tail = self._tail_in_memory(reader, request) if in_memory else self._tail(reader, request, force=force)
                placement = self._placement
            if request.draft is not None:
                retractions_of_app = (*retractions_of_app, request.draft)
            tail.check_held(request.hours())
            days = self._days(request)
            if in_memory:
                manifests = self._manifests_in_memory(reader, days, placement)
                reader = _MemoryReader(_known_version(reader))
            else:
                manifests = self._manifests(reader, days, tail, placement)
            # Erased samples are hidden at any as-of time: a cached tail may still contain them.
            in_force = tuple(filter(request.is_retracted_by, retractions_of_app))
            visibility = Visibility(
                tuple(filter(request.is_affected_by, in_force)),
                partial(self._series_of, check_deadline=request.check_deadline),
                request.asof_ms,
                request.knowledge,
            )
            if request.in_memory and visibility.retractions:
                raise NotInMemory("the series of a retraction")
            provenance = ProvenanceBuilder(
                request.asof_ms, request.erased(retractions_of_app), request.hours(), visibility.is_past
            )
            yield View(
                app=self.app,
                reader=reader,
                tail=tail,
                manifests=manifests,
                months=MonthManifests(self.rows, reader),
                rows=self.rows,
                visibility=visibility,
                in_force=in_force,
                retractions={r.number: r for r in retractions_of_app},
                placement=placement,
                provenance=provenance,
                span_ms=(request.start_ms, request.end_ms),
                check_deadline=request.check_deadline,
                in_memory=request.in_memory,
            )

    def select(self, matchers: Sequence[Matcher], check_deadline: DeadlineCheck, *, in_memory: bool) -> SeriesSelection:
        """The series that match; a few are kept until more series are known. Raises ``QueryTooLarge``."""
        key = tuple(matchers)
        known = self._selections.get(key)
        if known is not None and known[0] == len(self.index):
            return known[1]
        if in_memory:
            raise NotInMemory("a selection of series")
        with self.lock:
            count, rows, columns = len(self.index), self.index.select(key, check_deadline), self.index.columns()
        selection = SeriesSelection.of(rows, *columns)
        if len(selection) <= light_limits.LIGHT_SERIES_MAX:
            texts = sum(len(matcher.name) + len(matcher.value) for matcher in key)
            weight = _SELECTION_BYTES + texts + _SELECTED_BYTES * len(selection)
            self._selections.put(key, (count, selection), weight)
        return selection

    def read_retractions(self) -> tuple[Retraction, ...]:
        """All retractions of the app, ended ones too."""
        with self._backend.snapshot() as reader, self.lock:
            return self._read_retractions(reader)

    def read_knowledge(self) -> tuple[Knowledge, Mapping[int, ProcessWatermarks]]:
        """What is known now: watermarks first, THEN retractions, THEN a tail that is newer than both."""
        rows = watermarks.read(self._backend, self.app)
        with self._backend.snapshot() as reader, self.lock:
            knowledge = Knowledge.of(rows, self._read_retractions(reader))
            self._refresh_tail(reader, force=True)  # its blocks are read by those who want their hours
        return knowledge, rows

    def restore_knowledge(self, vector: bytes, retractions_in_force: Collection[int]) -> Knowledge:
        """The K that a verdict kept. Raises ``CorruptBlock`` if the watermarks lack something that it includes."""
        rows = watermarks.read(self._backend, self.app)
        with self._backend.snapshot() as reader, self.lock:
            self._refresh_tail(reader, force=True)
        return Knowledge(WatermarkVector.from_bytes(vector, rows), frozenset(retractions_in_force))

    def _days(self, request: ReadRequest) -> range:
        """The days of a request, without those in the future."""
        last = min(request.end_ms, self.clock.now_ms() + _AHEAD_HOURS * HOUR_MS) // _DAY_MS
        return range(max(request.start_ms // _DAY_MS, 0), last + 1)

    def _manifests(
        self, reader: Reader, days: range, tail: TailView, placement: PlacementTable
    ) -> Mapping[int, Manifest]:
        """The manifests of some days, read under this placement; read again when the store was written since."""
        version, last = version_of(reader), self._manifests_read.get(days)
        if last is not None and version is not None and last.version == version and last.placement == placement:
            return last.manifests
        is_bounded, weight = len(days) <= limits.QUERY_DAYS_MAX, min(len(days), limits.QUERY_DAYS_MAX)
        manifests = self.rows.manifests(reader, days if is_bounded else self._days_with_data(reader, days, tail))
        if self._read_placement(reader) != placement:
            raise OutdatedView("the placement")
        self._load_new_series(reader, manifests)
        self._manifests_read.put(days, _ManifestsRead(version, placement, manifests), weight)
        return manifests

    def _manifests_in_memory(self, reader: Reader, days: range, placement: PlacementTable) -> Mapping[int, Manifest]:
        """The manifests of some days that were read before, if they are still the same."""
        version, last = _known_version(reader), self._manifests_read.get(days)
        if last is None or last.placement != placement:
            raise NotInMemory("manifests")
        if last.version != version:
            is_short = len(days) <= light_limits.LIGHT_DAYS_MAX
            if not (is_short and self.rows.has_manifests(reader, days, last.manifests)):
                raise NotInMemory("a manifest")
            if self._read_placement(reader) != placement:
                raise NotInMemory("the placement")
            self._manifests_read.put(days, replace(last, version=version), len(days))
        return last.manifests

    def _days_with_data(self, reader: Reader, days: range, tail: TailView) -> list[int]:
        """The days that have a manifest, of a range with more days than a query may read.

        Raises ``QueryTooLarge`` if too many of them hold data; days that hold only un-compacted samples count too, so
        that a run changes no answer.
        """
        ranges = keys.manifest_ranges(self.app)
        listing = (keys.parse_manifest(key) for key, _ in scan_ranges(reader, "manifest", ranges, keys_only=True))
        stored = {day for day, is_month in listing if not is_month and day in days}
        count = len(stored.union(hour // DAY_HOURS for _, hour in tail.hour_shards() if hour // DAY_HOURS in days))
        if count > limits.QUERY_DAYS_MAX:
            raise QueryTooLarge(
                f"{count} days between {moment(days[0] * _DAY_MS)} and {moment(days[-1] * _DAY_MS)} hold data; "
                f"at most {limits.QUERY_DAYS_MAX} are read by one query: ask for less time"
            )
        return sorted(stored)

    def _read_retractions(self, reader: Reader, *, in_memory: bool = False) -> tuple[Retraction, ...]:
        """All retractions of the app; read again when the store was written since, decoded again if any has changed."""
        version = version_of(reader)
        if version is not None and version == self._retractions_version:
            return self._retractions
        if in_memory and (version is None or len(self._retraction_cells) > light_limits.LIGHT_RETRACTIONS_MAX):
            raise NotInMemory("retractions")
        rows = reader.scan("retractions", *keys.retraction_range(self.app), columns=[retractions.COLUMN])
        cells = [row[retractions.COLUMN] for _, row in rows]
        if cells != self._retraction_cells:
            if in_memory:
                raise NotInMemory("a retraction")
            self._retractions, self._retraction_cells = tuple(map(retractions.decode, cells)), cells
            self._retracted_series.clear()
        self._retractions_version = version
        return self._retractions

    def _read_placement(self, reader: Reader) -> PlacementTable:
        """The placement that the store names, else this process' default."""
        placement = epochs.read(reader, self.app)
        return self._default_placement if placement == _UNSET else placement

    def _refresh_tail(self, reader: Reader, *, force: bool) -> None:
        """Bring the list of pending records up to date."""
        if not force and self.tail.due and self.tail.renew(reader):
            return
        if force or self.tail.due:
            self._placement = self._read_placement(reader)
            self.tail.use_shards(self._placement.all_shards(self.app))
        self.tail.refresh(reader, force=force)

    def _tail(self, reader: Reader, request: ReadRequest, *, force: bool) -> TailView:
        """Refresh the tail, read the blocks of the hours of a request, and load every series that they name."""
        self._refresh_tail(reader, force=force)
        unread = self.tail.unread(request.days_in_hours())
        for at in range(0, len(unread), _TAIL_SHARDS_AT_ONCE):
            request.check_deadline()
            series, metrics = self.tail.load(reader, unread[at : at + _TAIL_SHARDS_AT_ONCE])
            try:
                self.index.ensure(reader, series, metrics)
            except BaseException:
                self.tail.reset()  # else the next read would not name these series again
                raise
        if request.names_all_series and self.tail.has_unread and self._listings_named != self.tail.listings:
            self.index.load(reader)
            self._listings_named = self.tail.listings
        self._note_size()
        return self.tail.view()

    def _note_size(self) -> None:
        """Tell the owner how many bytes index and tail take, if that has changed."""
        size_bytes = self.tail.size_bytes + self.index.size_bytes
        if size_bytes != self._noted_bytes:
            self._noted_bytes = size_bytes
            self._note_bytes(size_bytes)

    def _tail_in_memory(self, reader: Reader, request: ReadRequest) -> TailView:
        """The tail as it was read last. A large one is left to a thread: one series may have all of its rows."""
        if self.tail.due and not self.tail.renew(reader):
            raise NotInMemory("the tail")
        if self.tail.unread(request.days_in_hours()) or (request.names_all_series and self.tail.has_unread):
            raise NotInMemory("blocks of the tail")
        tail = self.tail.view()
        if tail.rows > light_limits.LIGHT_TAIL_ROWS_MAX:
            raise NotInMemory("a large tail")
        return tail

    @contextmanager
    def _locked(self, *, waits: bool) -> Iterator[None]:
        """Hold the lock; without waiting it raises ``NotInMemory`` where another thread has it."""
        if not self.lock.acquire(blocking=waits):
            raise NotInMemory("another query reads")
        try:
            yield
        finally:
            self.lock.release()

    def _load_new_series(self, reader: Reader, manifests: dict[int, Manifest]) -> None:
        """Load the dictionary when a manifest has changed: a run may have compacted blocks this process never read."""
        nonces = {day: value.nonce for day, value in manifests.items()}
        with self.lock:
            if any(self._nonces.get(day) != nonce for day, nonce in nonces.items()) or not len(self.index):
                self.index.load(reader)
                self._nonces.update(nonces)
                self._note_size()

    def _series_of(self, retraction: Retraction, check_deadline: DeadlineCheck) -> Pairs:
        """The series that a retraction's matchers select, selected again when more series are known."""
        with self.lock:
            count = len(self.index)
            selected = self._retracted_series.get(retraction.number)
            if selected is None or selected[0] != count:
                rows = self.index.select(retraction.matchers, check_deadline)
                ids, metrics = self.index.columns()
                selected = count, (ids[rows], metrics[rows])
                if retraction.number != retractions.DRAFT:  # the next draft has other matchers
                    self._retracted_series[retraction.number] = selected
            return selected[1]
