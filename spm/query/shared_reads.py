"""A storage whose reads are shared by several queries: equal selections over equal ranges are read once.

Rules of an app select the same metrics at the same steps. ``SharedReads`` keeps the runs of samples that were read, up
to a number of bytes, and passes everything else on. It is made for one chunk of steps and then dropped. Not
thread-safe. Enter by ``SharedReads``.
"""

from collections.abc import Sequence

from spm.bounded import LruCache
from spm.query.forwarding import ForwardingStorage
from spm.query.request.batches import DeadlineCheck, Matcher, no_deadline
from spm.query.samples.sample_runs import SampleRuns
from spm.query.storage import Storage


class SharedReads(ForwardingStorage):
    """Reads from another storage, and keeps the runs of samples for the next query."""

    def __init__(self, storage: Storage, bytes_max: int) -> None:
        super().__init__(storage)
        self._bytes_max = bytes_max
        self._retracted: SharedReads | None = None
        self._runs: LruCache[tuple[tuple[Matcher, ...], int, int], SampleRuns] = LruCache(bytes_max)

    def with_retracted(self) -> "SharedReads":
        """The same data as if nothing had been retracted, shared by the queries too."""
        if self._retracted is None:
            self._retracted = SharedReads(self._storage.with_retracted(), self._bytes_max)
        return self._retracted

    def select_runs(
        self, matchers: Sequence[Matcher], start_ms: int, end_ms: int, *, check_deadline: DeadlineCheck = no_deadline
    ) -> SampleRuns:
        """The samples of ``select`` as runs; the second query that wants them gets what the first one read."""
        key = tuple(matchers), start_ms, end_ms
        runs = self._runs.get(key)
        if runs is None:
            runs = self._storage.select_runs(matchers, start_ms, end_ms, check_deadline=check_deadline)
            self._runs.put(key, runs, runs.nbytes + 1)
        return runs
