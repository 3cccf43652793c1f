"""A storage that also has the samples that were recorded a moment ago and are on their way to the store.

A rule may read what the rules before it recorded at the same steps. Only selections of recorded metrics cost anything;
everything else passes to the storage below. Aggregates of whole hours come from there alone: the hours of steps that
are recorded now are not over. Enter by ``RecordedStorage.add``.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from alerts.recording.record import RecordedSamples
from spm.arrays import BOOL, F64, I64
from spm.query.forwarding import ForwardingStorage
from spm.query.request.batches import DeadlineCheck, SeriesBatch, no_deadline
from spm.query.samples.sample_runs import SampleRuns
from spm.query.storage import Storage
from spm.store.matchers import Matcher, mask

_Samples = tuple[Mapping[str, str], I64, F64]


class RecordedStorage(ForwardingStorage):
    """The data of another storage with samples added in memory."""

    def __init__(self, storage: Storage, recorded: dict[tuple[tuple[str, str], ...], _Samples] | None = None) -> None:
        super().__init__(storage)
        self._recorded = {} if recorded is None else recorded

    def add(self, samples: RecordedSamples, times: I64) -> None:
        """Add the samples of a rule at some times; later ones follow those that were added before."""
        for labels, values, written in zip(samples.labels, samples.values, samples.written, strict=True):
            if written.any():
                self._append(labels, times[written], values[written])

    def _append(self, labels: Mapping[str, str], ts: I64, values: F64) -> None:
        key = tuple(sorted(labels.items()))
        _, old_ts, old_values = self._recorded.get(key, (labels, np.empty(0, np.int64), np.empty(0)))
        earlier = old_ts < ts[0]
        self._recorded[key] = labels, np.append(old_ts[earlier], ts), np.append(old_values[earlier], values)

    def select_runs(
        self, matchers: Sequence[Matcher], start_ms: int, end_ms: int, *, check_deadline: DeadlineCheck = no_deadline
    ) -> SampleRuns:
        """The samples of ``select`` as runs; recorded ones take the place of stored ones from their first time on."""
        runs = self._storage.select_runs(matchers, start_ms, end_ms, check_deadline=check_deadline)
        recorded = self._matching(matchers, start_ms, end_ms)
        return SampleRuns.of(_join(runs.batch(), recorded)) if recorded else runs

    def _matching(
        self, matchers: Sequence[Matcher], start_ms: int, end_ms: int
    ) -> dict[tuple[tuple[str, str], ...], _Samples]:
        keys, series = list(self._recorded), [dict(labels) for labels, _, _ in self._recorded.values()]
        matching: BOOL = np.ones(len(keys), np.bool_)
        for matcher in matchers:
            matching &= mask([labels.get(matcher.name, "") for labels in series], matcher)
        result = {}
        for row in np.flatnonzero(matching):
            labels, ts, values = self._recorded[keys[row]]
            inside = slice(*np.searchsorted(ts, (start_ms, end_ms), side="right"))
            if len(ts[inside]):
                result[keys[row]] = labels, ts[inside], values[inside]
        return result

    def with_retracted(self) -> Storage:
        """The same data as if nothing had been retracted."""
        return RecordedStorage(self._storage.with_retracted(), self._recorded)


def _join(stored: SeriesBatch, recorded: dict[tuple[tuple[str, str], ...], _Samples]) -> SeriesBatch:
    """Return both as one batch: of a series in both, the stored samples before the first recorded one."""
    rest = dict(recorded)
    labels, ts, values = list[dict[str, str]](), list[I64](), list[F64]()
    for row, each in enumerate(stored.labels):
        part = slice(int(stored.offsets[row]), int(stored.offsets[row + 1]))
        own_ts, own_values = stored.ts[part], stored.values[part]
        if (more := rest.pop(tuple(sorted(each.items())), None)) is not None:
            earlier = own_ts < more[1][0]
            own_ts, own_values = np.append(own_ts[earlier], more[1]), np.append(own_values[earlier], more[2])
        labels.append(dict(each))
        ts.append(own_ts)
        values.append(own_values)
    for each_labels, each_ts, each_values in rest.values():
        labels.append(dict(each_labels))
        ts.append(each_ts)
        values.append(each_values)
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum([len(each) for each in ts], dtype=np.int64)))
    return SeriesBatch(labels, offsets, np.concatenate(ts), np.concatenate(values), stored.provenance)
