"""A storage in which ``ALERTS`` of some rules are what a run of judging says of them, from a step on.

A rule that reads alerts is judged before they are stored. Selections of other metrics cost nothing: they pass to the
storage below. Aggregates of whole hours come from there alone. Enter by ``with_run_alerts``.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby

import numpy as np

from alerts.judging.instances.keys import Aspect
from alerts.judging.readers.order import ALERTS, FOR_STATE
from alerts.judging.readers.run_alerts import RunAlerts
from alerts.judging.versions import Steps
from alerts.recording.alert_samples import series_of, stretches
from alerts.recording.limits import ALERTS_MAX
from alerts.recording.record import STALE
from alerts.templating.alert_texts import alert_labels
from spm.arrays import BOOL, F64, I64
from spm.query.forwarding import ForwardingStorage
from spm.query.request.batches import DeadlineCheck, SeriesBatch, no_deadline
from spm.query.samples.sample_runs import SampleRuns
from spm.query.storage import Storage
from spm.store.matchers import METRIC_NAME, Matcher, mask

_Name = tuple[tuple[str, str], ...]
_Samples = tuple[I64, F64]


def with_run_alerts(storage: Storage, alerts: RunAlerts) -> Storage:
    """Return the storage with the alerts of a run in place of those that it has of the same names."""
    return _JudgedAlerts(storage, _series(alerts), alerts.names, alerts.steps.first_ms)


def _series(alerts: RunAlerts) -> dict[_Name, _Samples]:
    """Return the samples of the alerts, by the labels of their series."""
    values = {each.key: each.value for each in alerts.transitions if each.value is not None}
    states = {
        key: state for key, state in alerts.states.items() if key.aspect == Aspect.VALUE and key.rule in alerts.ends
    }
    changes = [
        (each.key, each.at_ms, each.after)
        for each in alerts.transitions
        if each.key.aspect == Aspect.VALUE and each.at_ms <= alerts.ends.get(each.key.rule, -1)
    ]
    result: dict[_Name, _Samples] = {}
    parts = stretches(states, changes, alerts.steps)
    for number, (key, own) in enumerate(groupby(parts, key=lambda part: part.key)):
        if number >= ALERTS_MAX:
            break
        naming = alerts.namings[key.rule]
        series = alerts.labels.get(key.fingerprint, {})
        labels = alert_labels(naming.name, dict(naming.labels), series, values.get(key, np.nan))
        seen = Steps(alerts.steps.first_ms, alerts.ends[key.rule], alerts.steps.period_ms)
        for each in series_of(list(own), labels, len(seen)):
            times = seen.first_ms + seen.period_ms * np.arange(each.first, min(each.first + each.count, len(seen)))
            _add(result, tuple(sorted(each.labels.items())), times, np.full(len(times), each.value))
    return result


def _add(series: dict[_Name, _Samples], name: _Name, ts: I64, values: F64) -> None:
    """Add samples of a series; where two alerts have one series, an end does not count beside a value."""
    old_ts, old_values = series.get(name, (np.empty(0, np.int64), np.empty(0)))
    ts, values = np.append(old_ts, ts), np.append(old_values, values)
    in_order = np.lexsort((np.isnan(values), ts))
    ts, values = ts[in_order], values[in_order]
    is_first = np.append(True, ts[1:] != ts[:-1])[: len(ts)]
    series[name] = ts[is_first], values[is_first]


class _JudgedAlerts(ForwardingStorage):
    """The data of another storage with the alerts of a run in it."""

    def __init__(self, storage: Storage, series: Mapping[_Name, _Samples], names: frozenset[str], from_ms: int) -> None:
        super().__init__(storage)
        self._series, self._names, self._from_ms = series, names, from_ms

    def select_runs(
        self, matchers: Sequence[Matcher], start_ms: int, end_ms: int, *, check_deadline: DeadlineCheck = no_deadline
    ) -> SampleRuns:
        """The samples of ``select`` as runs; those of the run take the place of stored ones."""
        runs = self._storage.select_runs(matchers, start_ms, end_ms, check_deadline=check_deadline)
        if end_ms < self._from_ms or not _matches([{METRIC_NAME: name} for name in (ALERTS, FOR_STATE)], matchers):
            return runs
        return SampleRuns.of(self._join(runs.batch(), self._matching(matchers, start_ms, end_ms)))

    def with_retracted(self) -> Storage:
        """The same data as if nothing had been retracted."""
        return _JudgedAlerts(self._storage.with_retracted(), self._series, self._names, self._from_ms)

    def _matching(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int) -> dict[_Name, _Samples]:
        names = list(self._series)
        matching: BOOL = np.ones(len(names), np.bool_)
        for matcher in matchers:
            matching &= mask([dict(name).get(matcher.name, "") for name in names], matcher)
        result = {}
        for row in np.flatnonzero(matching).tolist():
            ts, values = self._series[names[row]]
            inside = slice(*np.searchsorted(ts, (start_ms, end_ms), side="right"))
            if len(ts[inside]):
                result[names[row]] = ts[inside], values[inside]
        return result

    def _join(self, stored: SeriesBatch, judged: dict[_Name, _Samples]) -> SeriesBatch:
        """Return both as one batch; a stored alert of which the run says nothing ends where the run begins."""
        rest = dict(judged)
        labels, ts, values = list[dict[str, str]](), list[I64](), list[F64]()
        for row, each in enumerate(stored.labels):
            part = slice(int(stored.offsets[row]), int(stored.offsets[row + 1]))
            own_ts, own_values = stored.ts[part], stored.values[part]
            if each.get(METRIC_NAME) in (ALERTS, FOR_STATE) and each.get("alertname") in self._names:
                more_ts, more_values = rest.pop(tuple(sorted(each.items())), (np.empty(0, np.int64), np.empty(0)))
                if not len(more_ts) or more_ts[0] > self._from_ms:
                    more_ts, more_values = np.append(self._from_ms, more_ts), np.append(STALE, more_values)
                earlier = own_ts < self._from_ms
                own_ts, own_values = np.append(own_ts[earlier], more_ts), np.append(own_values[earlier], more_values)
            labels.append(dict(each))
            ts.append(own_ts)
            values.append(own_values)
        for name, (more_ts, more_values) in rest.items():
            labels.append(dict(name))
            ts.append(more_ts)
            values.append(more_values)
        if not labels:
            return stored
        offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum([len(each) for each in ts], dtype=np.int64)))
        return SeriesBatch(labels, offsets, np.concatenate(ts), np.concatenate(values), stored.provenance)


def _matches(series: Sequence[Mapping[str, str]], matchers: Sequence[Matcher]) -> bool:
    """Whether one of these metrics may be selected."""
    of_name = [each for each in matchers if each.name == METRIC_NAME]
    return any(all(mask([each[METRIC_NAME]], matcher)[0] for matcher in of_name) for each in series)
