"""What a query asks of the store: a time range, a metric, the time of an as-of query, and a deadline.

A request reads nothing; it says which retractions affect it. Enter by ``ReadRequest``.
"""

from collections.abc import Sequence

from spm import limits
from spm.limits import HOUR_MS
from spm.query.request.batches import DeadlineCheck, no_deadline
from spm.store.matchers import METRIC_NAME, Matcher
from spm.store.versions.retractions import Retraction


class ReadRequest:
    """One read: samples with start_ms < ts <= end_ms, of one metric or (``metric`` is ``None``) of any."""

    def __init__(
        self,
        start_ms: int,
        end_ms: int,
        matchers: Sequence[Matcher] = (),
        asof_ms: int | None = None,
        check_deadline: DeadlineCheck = no_deadline,
    ) -> None:
        self.start_ms, self.end_ms, self.asof_ms, self.check_deadline = start_ms, end_ms, asof_ms, check_deadline
        self.metric = next((m.value for m in matchers if m.name == METRIC_NAME and m.op == "="), None)

    def hours(self) -> tuple[int, int] | None:
        """Its first hour and the one after its last; ``None`` for an empty time range."""
        first = max(int(self.start_ms) // HOUR_MS, 0)
        end = min(-(-int(self.end_ms) // HOUR_MS), limits.TIME_MAX_MS // HOUR_MS)
        return (first, end) if first < end else None

    def overlaps(self, retraction: Retraction) -> bool:
        """Whether a retraction is about any time within the time range."""
        return retraction.data_from_ms < self.end_ms and self.start_ms < retraction.data_to_ms

    def is_affected_by(self, retraction: Retraction) -> bool:
        """Whether a retraction may hide anything requested."""
        if not self.overlaps(retraction):
            return False
        return self.metric is None or retraction.metric is None or self.metric == retraction.metric

    def erased(self, retractions: Sequence[Retraction]) -> frozenset[int]:
        """Numbers of retractions made after the as-of time whose samples are deleted and missing from the answer."""
        if self.asof_ms is None:
            return frozenset()
        return frozenset(
            r.number
            for r in retractions
            if r.erased_ms and r.start_ms > self.asof_ms >= r.write_from_ms and self.is_affected_by(r)
        )
