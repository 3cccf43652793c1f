"""A storage in front of another one, which passes on whatever its kind does not change.

A kind reads samples in a way of its own and has the same for data with what was retracted; names, aggregates and
sketches are those of the storage below. Enter by ``ForwardingStorage``, of which kinds are made.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence

from spm.arrays import I64
from spm.query.request.batches import (
    DeadlineCheck,
    HourBatch,
    Matcher,
    Segments,
    SeriesBatch,
    SketchBatch,
    no_deadline,
)
from spm.query.samples.sample_runs import SampleRuns
from spm.query.storage import Storage


class ForwardingStorage(ABC):
    """Passes everything on but samples."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    @abstractmethod
    def select_runs(
        self, matchers: Sequence[Matcher], start_ms: int, end_ms: int, *, check_deadline: DeadlineCheck = no_deadline
    ) -> SampleRuns:
        """The samples of ``select`` as runs."""

    @abstractmethod
    def with_retracted(self) -> Storage:
        """The same data as if nothing had been retracted."""

    def select(
        self, matchers: Sequence[Matcher], start_ms: int, end_ms: int, *, check_deadline: DeadlineCheck = no_deadline
    ) -> SeriesBatch:
        """Samples of the series that match, as ``Storage`` has it."""
        return self.select_runs(matchers, start_ms, end_ms, check_deadline=check_deadline).batch()

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
        """Labels of stored series, as ``Storage`` has it."""
        return self._storage.series(matcher_sets, start_ms, end_ms, most=most, check_deadline=check_deadline)

    def label_names(
        self,
        matcher_sets: Sequence[Sequence[Matcher]],
        start_ms: int,
        end_ms: int,
        *,
        check_deadline: DeadlineCheck = no_deadline,
    ) -> list[str]:
        """Names of labels of stored series, as ``Storage`` has it."""
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
        """Values of a label of stored series, as ``Storage`` has it."""
        return self._storage.label_values(name, matcher_sets, start_ms, end_ms, check_deadline=check_deadline)

    def notes(self) -> list[str]:
        """Notes that hold for all answers."""
        return self._storage.notes()

    def damage(self) -> list[str]:
        """Warnings about damaged rows."""
        return self._storage.damage()
