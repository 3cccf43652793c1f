"""What a reading process keeps of one app, and the consistent views that queries get from it.

Kept are the index of series, the merged tail, the distribution and what retractions say; decoded rows lie in a cache
that all apps share. ``Held.scan`` makes one query's view in the order of rule 9: retractions once, the distribution,
pending, THEN manifests. The distribution is read once more after the manifests: were it another by then, a metric
might lie in a shard that was not looked into, and the query starts again. Enter by ``Held.scan``.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from spm import limits
from spm.clock import Clock
from spm.errors import QueryTooLarge
from spm.limits import DAY_HOURS, HOUR_MS
from spm.query.request.batches import Tick, nothing
from spm.query.request.provenance import Ground, moment
from spm.query.series.index import SeriesIndex
from spm.query.view.page_cache import PageCache
from spm.query.view.tail import Tail, TailView
from spm.query.view.view import Months, Moved, Rows, Scan
from spm.store import epochs, keys
from spm.store.backends.base import Backend, Reader, version_of
from spm.store.backends.ranges import scan_ranges
from spm.store.keys import Distribution
from spm.store.manifest import Manifest
from spm.store.matchers import METRIC_NAME, Matcher
from spm.store.versions import retractions
from spm.store.versions.quarantine import Quarantine
from spm.store.versions.retractions import Retraction
from spm.store.versions.visibility import Pairs, Visibility

_AHEAD_HOURS = limits.FUTURE_MS // HOUR_MS + 1  # nothing is accepted further ahead
_DAY_MS = DAY_HOURS * HOUR_MS
_UNSET = Distribution()


class Held:
    """One app in one process. Thread-safe; what is locked says so."""

    def __init__(self, backend: Backend, app: int, given: Distribution, clock: Clock, cache: PageCache) -> None:
        self.app, self.clock, self.lock = app, clock, threading.RLock()
        self.quarantine = Quarantine(backend, clock)
        self.rows = Rows(app, cache, self.quarantine)
        self.index = SeriesIndex(app, lambda key, raw, error: self.quarantine.report(app, "series", key, raw, error))
        self._backend, self._given, self._distribution = backend, given, given
        self.tail = Tail(app, given.all(app), clock, self.rows.log)
        self._nonces: dict[int, int] = {}
        self._asked: tuple[object, Mapping[int, Manifest]] = None, {}  # the last question for manifests, and these
        self._cells: list[bytes] = []  # of the retractions last read
        self._retracted_at: int | None = None  # the version these were read from
        self._retractions: tuple[Retraction, ...] = ()
        self._selected: dict[int, tuple[int, Pairs]] = {}  # retraction -> (series known then, those it is about)

    @contextmanager
    def scan(self, question: "Question", *, force: bool) -> Iterator[Scan]:
        """A consistent view for a question; raises ``Moved`` when it cannot be one and must be asked for again.

        The snapshot is taken under the lock: one taken before might be older than the tail that another query has just
        refreshed, and a manifest must never be older than the pending records it is used with.
        """
        with ExitStack() as stack:
            with self.lock:
                reader = stack.enter_context(self._backend.snapshot())
                found = self._read_retractions(reader)
                tail = self._refreshed(reader, force=force)
                spread = self._distribution
            manifests = self._manifests(reader, self._days(question), tail, spread)
            # What is being deleted for good is hidden at any moment: a cached tail may hold it for a while yet.
            active = tuple(r for r in found if (r.active(question.asof_ms) or r.purged_ms) and question.reaches(r))
            met = tuple(filter(question.meets, active))
            yield Scan(
                app=self.app,
                reader=reader,
                tail=tail,
                manifests=manifests,
                months=Months(self.rows, reader),
                rows=self.rows,
                lens=Visibility(met, self._series_of, question.asof_ms),
                active=active,
                known={r.number: r for r in found},
                distribution=spread,
                ground=Ground(question.asof_ms, question.purged(found), question.hours()),
                span_ms=(question.start_ms, question.end_ms),
                tick=question.tick,
            )

    def _days(self, question: "Question") -> range:
        """The days that a question is about."""
        last = min(question.end_ms, self.clock.now_ms() + _AHEAD_HOURS * HOUR_MS) // _DAY_MS
        return range(max(question.start_ms // _DAY_MS, 0), last + 1)

    def _manifests(self, reader: Reader, days: range, tail: TailView, spread: Distribution) -> Mapping[int, Manifest]:
        """Those of some days, which go with this distribution; read again when anything at all was written since."""
        version = version_of(reader)
        asked = version, days, spread
        known = self._asked  # one look: other queries put theirs in its place
        if version is not None and asked == known[0]:
            return known[1]
        few = len(days) <= limits.QUERY_DAYS_MAX
        found = self.rows.manifests(reader, days if few else self._days_known(reader, days, tail))
        if self._spread(reader) != spread:
            raise Moved("the distribution")
        self._notice(reader, found)
        self._asked = asked, found
        return found

    def _days_known(self, reader: Reader, days: range, tail: TailView) -> list[int]:
        """Of more days than a query may read: those the store knows anything of. Raises ``QueryTooLarge``.

        Days of un-compacted samples count too, so that a run changes nothing.
        """
        ranges = keys.manifest_ranges(self.app)
        listed = (keys.parse_manifest(key) for key, _ in scan_ranges(reader, "manifest", ranges, keys_only=True))
        stored = {day for day, is_month in listed if not is_month and day in days}
        count = len(stored.union(hour // DAY_HOURS for _, hour in tail.units() if hour // DAY_HOURS in days))
        if count > limits.QUERY_DAYS_MAX:
            raise QueryTooLarge(
                f"{count} days between {moment(days[0] * _DAY_MS)} and {moment(days[-1] * _DAY_MS)} hold data; "
                f"at most {limits.QUERY_DAYS_MAX} are read by one query: ask for less time"
            )
        return sorted(stored)

    def _read_retractions(self, reader: Reader) -> tuple[Retraction, ...]:
        """All of the app; read again when anything was written since, decoded again when any of them has changed."""
        version = version_of(reader)
        if version is not None and version == self._retracted_at:
            return self._retractions
        rows = reader.scan("retractions", *keys.retraction_range(self.app), columns=[retractions.COLUMN])
        cells = [row[retractions.COLUMN] for _, row in rows]
        if cells != self._cells:
            self._retractions, self._cells = tuple(map(retractions.decode, cells)), cells
            self._selected.clear()
        self._retracted_at = version
        return self._retractions

    def _spread(self, reader: Reader) -> Distribution:
        """The distribution that the store names, else the one this process was given."""
        found = epochs.read(reader, self.app)
        return self._given if found == _UNSET else found

    def _refreshed(self, reader: Reader, *, force: bool) -> TailView:
        """The tail, with every series it names in the index."""
        if force or self.tail.due:
            self._distribution = self._spread(reader)
            self.tail.look_in(self._distribution.all(self.app))
        series, metrics = self.tail.refresh(reader, force=force)
        try:
            self.index.ensure(reader, series, metrics)
        except BaseException:
            self.tail.reset()  # it would not name them again
            raise
        return self.tail.view()

    def _notice(self, reader: Reader, manifests: dict[int, Manifest]) -> None:
        """A run may have taken blocks this process never saw: read the dictionary again when a manifest moved."""
        nonces = {day: m.nonce for day, m in manifests.items()}
        with self.lock:
            if any(self._nonces.get(day) != nonce for day, nonce in nonces.items()) or not len(self.index):
                self.index.load(reader)
                self._nonces.update(nonces)

    def _series_of(self, retraction: Retraction) -> Pairs:
        """The series that a retraction's matchers select, chosen again when more series are known."""
        with self.lock:
            known = len(self.index)
            held = self._selected.get(retraction.number)
            if held is None or held[0] != known:
                rows = self.index.select(retraction.matchers)
                ids, metrics = self.index.columns()
                held = self._selected[retraction.number] = known, (ids[rows], metrics[rows])
            return held[1]


class Question:
    """What a view is asked for: a time range, the metrics (``None``: any), as accepted by when, and a time limit."""

    def __init__(
        self,
        start_ms: int,
        end_ms: int,
        matchers: Sequence[Matcher] = (),
        asof_ms: int | None = None,
        tick: Tick = nothing,
    ) -> None:
        self.start_ms, self.end_ms, self.asof_ms, self.tick = start_ms, end_ms, asof_ms, tick
        self.metric = next((m.value for m in matchers if m.name == METRIC_NAME and m.op == "="), None)

    def hours(self) -> tuple[int, int] | None:
        """The first hour it is about and the one after the last; ``None`` for no time at all."""
        first = max(int(self.start_ms) // HOUR_MS, 0)
        end = min(-(-int(self.end_ms) // HOUR_MS), limits.TIME_MAX_MS // HOUR_MS)
        return (first, end) if first < end else None

    def reaches(self, retraction: Retraction) -> bool:
        """Whether a retraction is about anything within the time range."""
        return retraction.data_from_ms < self.end_ms and self.start_ms < retraction.data_to_ms

    def meets(self, retraction: Retraction) -> bool:
        """Whether it may hide anything of what is asked for."""
        if not self.reaches(retraction):
            return False
        return self.metric is None or retraction.metric is None or self.metric == retraction.metric

    def purged(self, found: Sequence[Retraction]) -> frozenset[int]:
        """Retractions not yet made by the time asked for, whose samples are deleted all the same."""
        if self.asof_ms is None:
            return frozenset()
        gone = (r for r in found if r.purged_ms and r.start_ms > self.asof_ms >= r.write_from_ms and self.meets(r))
        return frozenset(r.number for r in gone)
