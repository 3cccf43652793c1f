"""The series ``ALERTS`` and ``ALERTS_FOR_STATE`` of alerts, as Prometheus has them. Pure.

``ALERTS{alertname, alertstate, …}`` is 1 while an alert is pending or firing; ``ALERTS_FOR_STATE`` is the time, in
seconds, at which it left ok. A series that ends gets a stale marker. Enter by ``stretches``, ``series_of`` and
``ended_series``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from alerts.judging.automaton import OK, InstanceState, Phase
from alerts.judging.instances.keys import Aspect, InstanceKey
from alerts.judging.readers.order import ALERTS, FOR_STATE
from alerts.judging.versions import Steps
from alerts.recording.record import STALE
from spm.store.matchers import METRIC_NAME

Change = tuple[InstanceKey, int, InstanceState]  # an instance, a step, and its state from that step on


@dataclass(frozen=True, slots=True)
class AlertStretch:
    """Steps at which an instance is in one phase: the indexes first ≤ step < end."""

    key: InstanceKey
    state: InstanceState
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class SeriesStretch:
    """A series with one value from a step on, for a number of steps; one step for a stale marker."""

    labels: Mapping[str, str]
    value: float
    first: int
    count: int


def stretches(
    states: Mapping[InstanceKey, InstanceState], changes: Iterable[Change], steps: Steps
) -> list[AlertStretch]:
    """Return the stretches of the steps at which instances are not ok, or just became so, by instance and time.

    ``states`` are those before the first step. Aspects other than values have no series.
    """
    result = list[AlertStretch]()
    begun = {key: (_written(state), 0) for key, state in states.items() if key.aspect == Aspect.VALUE}
    for key, at_ms, after in sorted(changes, key=lambda change: change[1]):
        if key.aspect != Aspect.VALUE:
            continue
        index = min(max(steps.index_from(at_ms), 0), len(steps))
        state, first = begun.get(key, (OK, 0))
        result.append(AlertStretch(key, state, first, index))
        begun[key] = _written(after), index
    result += [AlertStretch(key, state, first, len(steps)) for key, (state, first) in begun.items()]
    return sorted(result, key=lambda each: (each.key, each.first, each.end))


def series_of(parts: Sequence[AlertStretch], labels: Mapping[str, str], size: int) -> list[SeriesStretch]:
    """Return the series of one alert's stretches over ``size`` steps; ``labels`` are those of the alert."""
    result, before = list[SeriesStretch](), dict[str, SeriesStretch]()
    for part in parts:
        now = _series(part, labels) if part.state != OK else {}
        if part.first < size:
            ended = [series for kind, series in before.items() if kind not in now]
            result += [SeriesStretch(series.labels, STALE, part.first, 1) for series in ended]
        result += [series for series in now.values() if series.count]
        before = now
    return result


def ended_series(labels: Mapping[str, str], *, was_alerting: bool, now: InstanceState) -> list[Mapping[str, str]]:
    """Return the labels of the series of an alert that are no longer written, now that it is in this state."""
    alerts, for_state = _names(labels, was_alerting), {**labels, METRIC_NAME: FOR_STATE}
    if _written(now) == OK:
        return [alerts, for_state]
    return [] if now.is_alerting == was_alerting else [alerts]


def _written(state: InstanceState) -> InstanceState:
    """Return the state as series have it: an alert that a person has ended has none."""
    return OK if state.phase is Phase.CLOSED else state


def _names(labels: Mapping[str, str], is_alerting: bool) -> dict[str, str]:
    return {**labels, METRIC_NAME: ALERTS, "alertstate": "firing" if is_alerting else "pending"}


def _series(part: AlertStretch, labels: Mapping[str, str]) -> dict[str, SeriesStretch]:
    alert, count = _names(labels, part.state.is_alerting), part.end - part.first
    since_s = (part.state.active_ms or 0) / 1000
    return {
        alert["alertstate"]: SeriesStretch(alert, 1.0, part.first, count),
        FOR_STATE: SeriesStretch({**labels, METRIC_NAME: FOR_STATE}, since_s, part.first, count),
    }
