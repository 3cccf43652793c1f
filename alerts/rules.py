"""The state machine of an alert: one series, one condition, one evaluation. Pure: values and ``now`` in, new state out.

    inactive ──violated──▶ pending ──violated for ``for_ms``──▶ firing ──well for ``keep_firing_for_ms``──▶ resolved
        ▲                     │                                   ▲ │ violated again                            │
        └─────────well────────┘                                   └─┘                     pending ◀──violated───┘

With ``for_ms`` 0 a violated series fires at once. A rule with a comparator compares values with its threshold; while
it fires, with its recovery threshold if it has one. A rule without comparator leaves the decision to the expression: a
series in the answer is violated, a series that is missing from it is well.

No data keeps the state: a rule with a comparator that gets no value (or NaN) neither fires nor resolves until it gets
one. Durations are measured in time, not in evaluations: after a pause the first evaluation is right at once. An
*episode* is named by the time at which it began; one pair of messages (firing, resolved) belongs to it.
"""

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum


class State(StrEnum):
    """The state of a series under a rule."""

    INACTIVE = "inactive"
    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"


COMPARATORS: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}
NO_COMPARATOR = ""  # the expression decides
ACTIVE = frozenset({State.PENDING, State.FIRING})
REPORTED = frozenset({State.FIRING, State.RESOLVED})  # people get a message about a change into one of these


@dataclass(frozen=True, slots=True)
class Condition:
    """When a series is violated, and how long this must last before a message is sent."""

    comparator: str = NO_COMPARATOR
    threshold: float = 0.0
    recovery: float | None = None
    for_ms: int = 0
    keep_firing_for_ms: int = 0


@dataclass(frozen=True, slots=True)
class SeriesState:
    """The record of one series: its state and since when, its episode, and since when a firing series is well."""

    state: State = State.INACTIVE
    since_ms: int = 0
    episode_ms: int = 0
    value: float = math.nan
    well_since_ms: int | None = None

    @property
    def number(self) -> float | None:
        """The value as the database stores it: None in place of NaN."""
        return None if math.isnan(self.value) else self.value


UNKNOWN = SeriesState()


def step(condition: Condition, before: SeriesState, value: float | None, now_ms: int) -> SeriesState:
    """Return the state after an evaluation at ``now_ms`` with this value (None: the answer lacks the series)."""
    violated = is_violated(condition, before.state, value)
    if violated is None:
        return before
    current = replace(before, value=before.value if value is None else value)
    if before.state not in ACTIVE:
        return _begin(condition, current, now_ms) if violated else before
    if before.state is State.PENDING:
        return _wait(condition, current, now_ms) if violated else SeriesState()
    return replace(current, well_since_ms=None) if violated else _recover(condition, current, now_ms)


def is_violated(condition: Condition, state: State, value: float | None) -> bool | None:
    """Whether the value breaks the condition; None if there is no value to decide by."""
    if condition.comparator == NO_COMPARATOR:
        return value is not None
    if value is None or math.isnan(value):
        return None
    is_recovering = state is State.FIRING and condition.recovery is not None
    bound = condition.recovery if is_recovering and condition.recovery is not None else condition.threshold
    return COMPARATORS[condition.comparator](value, bound)


def recovery_is_sound(comparator: str, threshold: float | None, recovery: float) -> bool:
    """Whether a firing series can recover there: only < and > have a good side, and recovery must lie on it."""
    if threshold is None or comparator not in (">", ">=", "<", "<="):
        return False
    return recovery <= threshold if comparator in (">", ">=") else recovery >= threshold


def end_episode(before: SeriesState, now_ms: int) -> SeriesState:
    """End an episode because a person changed the rule: firing is resolved, pending ends without an event."""
    if before.state is State.FIRING:
        return replace(before, state=State.RESOLVED, since_ms=now_ms, well_since_ms=None)
    return SeriesState() if before.state is State.PENDING else before


def _begin(condition: Condition, current: SeriesState, now_ms: int) -> SeriesState:
    state = State.PENDING if condition.for_ms else State.FIRING
    return SeriesState(state=state, since_ms=now_ms, episode_ms=now_ms, value=current.value)


def _wait(condition: Condition, current: SeriesState, now_ms: int) -> SeriesState:
    if now_ms - current.since_ms < condition.for_ms:
        return current
    return replace(current, state=State.FIRING, since_ms=now_ms)


def _recover(condition: Condition, current: SeriesState, now_ms: int) -> SeriesState:
    since_ms = now_ms if current.well_since_ms is None else current.well_since_ms
    if now_ms - since_ms < condition.keep_firing_for_ms:
        return replace(current, well_since_ms=since_ms)
    return replace(current, state=State.RESOLVED, since_ms=now_ms, well_since_ms=None)


@dataclass(frozen=True, slots=True)
class Change:
    """One series before and after an evaluation. A new value in an unchanged state is a change too."""

    fingerprint: str
    before: SeriesState
    after: SeriesState

    @property
    def is_event(self) -> bool:
        """Whether the state itself changed."""
        return self.before.state is not self.after.state

    @property
    def episode_ms(self) -> int:
        """The episode that the change belongs to, also if it ends a pending episode."""
        return self.after.episode_ms or self.before.episode_ms


@dataclass(frozen=True, slots=True)
class Evaluation:
    """All changes of one evaluation of a rule, and how many violated series were skipped because of the bound."""

    changes: tuple[Change, ...]
    skipped: int


def evaluate(
    condition: Condition,
    series_states: Mapping[str, SeriesState],
    values: Mapping[str, float],
    *,
    now_ms: int,
    active_max: int,
) -> Evaluation:
    """Step every series that has a state or a value. New episodes beyond the bound wait, in order of fingerprints."""
    changes, skipped = [], 0
    active = sum(each.state in ACTIVE for each in series_states.values())
    for fingerprint in sorted(series_states.keys() | values.keys()):
        before = series_states.get(fingerprint, UNKNOWN)
        after = step(condition, before, values.get(fingerprint), now_ms)
        begins = after.state in ACTIVE and before.state not in ACTIVE
        if begins and active >= active_max:
            skipped += 1
            continue
        active += begins
        if not _is_equal(before, after):
            changes.append(Change(fingerprint, before, after))
    return Evaluation(tuple(changes), skipped)


def _is_equal(before: SeriesState, after: SeriesState) -> bool:
    """Compare so that NaN equals NaN."""
    return repr(before) == repr(after)
