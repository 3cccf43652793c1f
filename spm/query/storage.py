"""The data of one app as the evaluator sees it: the interface that every storage has.

A `Storage` answers for one app: samples of the series that match, aggregates of hours and days, sketches, and the names
that exist. The evaluator sees nothing else of the store, so that tables on disk (`spm.query.reader`) and arrays in
memory (`spm.query.fake`) give the same answers. All intervals are left-open, as PromQL's are.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from spm.arrays import I64
from spm.query.request.batches import DeadlineCheck, HourBatch, Matcher, Segments, SeriesBatch, SketchBatch
from spm.query.samples.sample_runs import SampleRuns


class Storage(Protocol):
    """The data of one app, for reading."""

    def select(
        self, matchers: Sequence[Matcher], start_ms: int, end_ms: int, *, check_deadline: DeadlineCheck = ...
    ) -> SeriesBatch:
        """Samples with start_ms < ts <= end_ms of the series that satisfy all matchers."""

    def select_runs(
        self, matchers: Sequence[Matcher], start_ms: int, end_ms: int, *, check_deadline: DeadlineCheck = ...
    ) -> SampleRuns:
        """The samples of `select` as runs, which are not copied."""

    def with_retracted(self) -> "Storage":
        """The same data as if nothing had been retracted; what is erased stays hidden."""

    def select_cells(
        self, matchers: Sequence[Matcher], borders: I64, names: Collection[str], *, check_deadline: DeadlineCheck = ...
    ) -> HourBatch:
        """The count and the named aggregates of cells, equal to what the samples give.

        Cell i has the hours borders[i]:borders[i + 1]: one, or the 24 of a UTC day.
        """

    def select_segments(
        self,
        matchers: Sequence[Matcher],
        segments: Segments,
        names: Collection[str],
        *,
        check_deadline: DeadlineCheck = ...,
    ) -> HourBatch:
        """The count and the named aggregates of segments, each a cell; those that no window needs may be empty."""

    def select_sketches(
        self, matchers: Sequence[Matcher], segments: Segments, *, check_deadline: DeadlineCheck = ...
    ) -> SketchBatch:
        """Sketches of the samples of each series within each segment that any window needs."""

    def series(
        self,
        matcher_sets: Sequence[Sequence[Matcher]],
        start_ms: int,
        end_ms: int,
        *,
        most: int | None = None,
        check_deadline: DeadlineCheck = ...,
    ) -> list[dict[str, str]]:
        """Labels of the series that satisfy any of the sets (no set: all series) and have samples in the interval.

        ``most`` limits their number.
        """

    def label_names(
        self,
        matcher_sets: Sequence[Sequence[Matcher]],
        start_ms: int,
        end_ms: int,
        *,
        check_deadline: DeadlineCheck = ...,
    ) -> list[str]:
        """Sorted names of the labels of those series."""

    def label_values(
        self,
        name: str,
        matcher_sets: Sequence[Sequence[Matcher]],
        start_ms: int,
        end_ms: int,
        *,
        check_deadline: DeadlineCheck = ...,
    ) -> list[str]:
        """Sorted values of one label of those series."""

    def notes(self) -> list[str]:
        """Notes that hold for all answers: the age of the tail."""

    def damage(self) -> list[str]:
        """Warnings that hold for all answers: which rows are in quarantine and left out."""
