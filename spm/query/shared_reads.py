"""A storage whose reads are shared by several queries: equal selections over equal ranges are read once.

Rules of an app select the same metrics at the same steps. ``SharedReads`` keeps the runs of samples that were read, up
to a number of bytes, and passes everything else on. It is made for one chunk of steps and then dropped. Not
thread-safe. Enter by ``SharedReads``.
"""

from collections.abc import Collection, Sequence

from spm.arrays import I64
from spm.bounded import LruCache
from spm.query.request.batches import (
    DeadlineCheck,
    HourBatch,
    Matcher,
    Segments,
    SeriesBatch,
    SketchBatch,
    no_deadline,
)
from spm.query.request.budget import SAMPLE_BYTES
from spm.query.samples.sample_runs import SampleRuns
from spm.query.storage import Storage


class SharedReads:
    """Reads from another storage, and keeps the runs of samples for the next query."""

    def __init__(self, storage: Storage, bytes_max: int) -> None:
        self._storage, self._bytes_max = storage, bytes_max
        self._retracted: SharedReads | None = None
        self._runs: LruCache[tuple[tuple[Matcher, ...], int, int], SampleRuns] = LruCache(bytes_max)

    def with_retracted(self) -> "SharedReads":
        """The same data as if nothing had been retracted, shared by the queries too."""
        if self._retracted is None:
            self._retracted = SharedReads(self._storage.with_retracted(), self._bytes_max)
        return self._retracted

    def select(
        self, matchers: Sequence[Matcher], start_ms: int, end_ms: int, *, check_deadline: DeadlineCheck = no_deadline
    ) -> SeriesBatch:
        """Samples of the series that match, as ``Storage`` has it."""
        return self.select_runs(matchers, start_ms, end_ms, check_deadline=check_deadline).batch()

    def select_runs(
        self, matchers: Sequence[Matcher], start_ms: int, end_ms: int, *, check_deadline: DeadlineCheck = no_deadline
    ) -> SampleRuns:
        """The samples of ``select`` as runs; the second query that wants them gets what the first one read."""
        key = tuple(matchers), start_ms, end_ms
        runs = self._runs.get(key)
        if runs is None:
            runs = self._storage.select_runs(matchers, start_ms, end_ms, check_deadline=check_deadline)
            self._runs.put(key, runs, runs.samples * SAMPLE_BYTES + 1)
        return runs

    def select_cells(
        self,
        matchers: Sequence[Matcher],
        borders: I64,
        names: Collection[str],
        *,
        check_deadline: DeadlineCheck = no_deadline,
    ) -> HourBatch:
        """Aggregates of cells, as ``Storage`` has it."""
        return self._storage.select_cells(matchers, borders, names, check_deadline=check_deadline)

    def select_segments(
        self,
        matchers: Sequence[Matcher],
        segments: Segments,
        names: Collection[str],
        *,
        check_deadline: DeadlineCheck = no_deadline,
    ) -> HourBatch:
        """Aggregates of segments, as ``Storage`` has it."""
        return self._storage.select_segments(matchers, segments, names, check_deadline=check_deadline)

    def select_sketches(
        self, matchers: Sequence[Matcher], segments: Segments, *, check_deadline: DeadlineCheck = no_deadline
    ) -> SketchBatch:
        """Sketches of segments, as ``Storage`` has it."""
        return self._storage.select_sketches(matchers, segments, check_deadline=check_deadline)

    def series(
        self,
        matcher_sets: Sequence[Sequence[Matcher]],
        start_ms: int,
        end_ms: int,
        *,
        most: int | None = None,
        check_deadline: DeadlineCheck = no_deadline,
    ) -> list[dict[str, str]]:
        """Labels of series, as ``Storage`` has it."""
        return self._storage.series(matcher_sets, start_ms, end_ms, most=most, check_deadline=check_deadline)

    def label_names(
        self,
        matcher_sets: Sequence[Sequence[Matcher]],
        start_ms: int,
        end_ms: int,
        *,
        check_deadline: DeadlineCheck = no_deadline,
    ) -> list[str]:
        """Names of labels, as ``Storage`` has it."""
        return self._storage.label_names(matcher_sets, start_ms, end_ms, check_deadline=check_deadline)

    def label_values(
        self,
        name: str,
        matcher_sets: Sequence[Sequence[Matcher]],
        start_ms: int,
        end_ms: int,
        *,
        check_deadline: DeadlineCheck = no_deadline,
    ) -> list[str]:
        """Values of a label, as ``Storage`` has it."""
        return self._storage.label_values(name, matcher_sets, start_ms, end_ms, check_deadline=check_deadline)

    def notes(self) -> list[str]:
        """Notes that hold for all answers."""
        return self._storage.notes()

    def damage(self) -> list[str]:
        """Warnings about damaged rows."""
        return self._storage.damage()
