"""The state machine of an alert: one series, one condition, one look. Pure: values and ``now`` in, the new state out.

    inactive ──violated──▶ pending ──violated for ``for_ms``──▶ firing ──well for ``keep_firing_for_ms``──▶ resolved
        ▲                     │                                   ▲ │ violated again                            │
        └─────────well────────┘                                   └─┘                     pending ◀──violated───┘

With ``for_ms`` 0 a violated series fires at once. A rule with a comparator judges values against its threshold; while
it fires, against its recovery threshold where there is one. A rule without comparator takes the expression's word: a
series in the answer is violated, one that is not is well.

No data keeps the state: a rule with a comparator that gets no value (or NaN) neither fires nor resolves until it gets
one. Durations are times that passed, not looks that were made: a watchman who slept judges rightly at his first look.
An *episode* is named by the time at which it began; it is what one pair of messages (firing, resolved) is about.
"""

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum


class State(StrEnum):
    """Where a series stands."""

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
TOLD = frozenset({State.FIRING, State.RESOLVED})  # changes into these are told to people


@dataclass(frozen=True, slots=True)
class Condition:
    """When a series is violated, and how long before anybody hears of it."""

    comparator: str = NO_COMPARATOR
    threshold: float = 0.0
    recovery: float | None = None
    for_ms: int = 0
    keep_firing_for_ms: int = 0


@dataclass(frozen=True, slots=True)
class Standing:
    """What is remembered of one series: its state and since when, its episode, and since when a firing one is well."""

    state: State = State.INACTIVE
    since_ms: int = 0
    episode_ms: int = 0
    value: float = math.nan
    well_since_ms: int | None = None


UNKNOWN = Standing()


def step(condition: Condition, before: Standing, value: float | None, now_ms: int) -> Standing:
    """Where the series stands after a look at ``now_ms`` that found ``value`` (None: the answer does not hold it)."""
    violated = is_violated(condition, before.state, value)
    if violated is None:
        return before
    seen = replace(before, value=before.value if value is None else value)
    if before.state not in ACTIVE:
        return _begin(condition, seen, now_ms) if violated else before
    if before.state is State.PENDING:
        return _wait(condition, seen, now_ms) if violated else Standing()
    return replace(seen, well_since_ms=None) if violated else _recover(condition, seen, now_ms)


def is_violated(condition: Condition, state: State, value: float | None) -> bool | None:
    """Whether the value breaks the condition; None if there is nothing to judge by."""
    if condition.comparator == NO_COMPARATOR:
        return value is not None
    if value is None or math.isnan(value):
        return None
    eased = state is State.FIRING and condition.recovery is not None
    bound = condition.recovery if eased and condition.recovery is not None else condition.threshold
    return COMPARATORS[condition.comparator](value, bound)


def recovery_is_sound(comparator: str, threshold: float | None, recovery: float) -> bool:
    """Whether a series that fires can recover there: only orders have a good side, and recovery lies on it."""
    if threshold is None or comparator not in (">", ">=", "<", "<="):
        return False
    return recovery <= threshold if comparator in (">", ">=") else recovery >= threshold


def settle(before: Standing, now_ms: int) -> Standing:
    """The end of an episode by a person's act: firing is resolved, pending ends without a trace."""
    if before.state is State.FIRING:
        return replace(before, state=State.RESOLVED, since_ms=now_ms, well_since_ms=None)
    return Standing() if before.state is State.PENDING else before


def _begin(condition: Condition, seen: Standing, now_ms: int) -> Standing:
    state = State.PENDING if condition.for_ms else State.FIRING
    return Standing(state=state, since_ms=now_ms, episode_ms=now_ms, value=seen.value)


def _wait(condition: Condition, seen: Standing, now_ms: int) -> Standing:
    if now_ms - seen.since_ms < condition.for_ms:
        return seen
    return replace(seen, state=State.FIRING, since_ms=now_ms)


def _recover(condition: Condition, seen: Standing, now_ms: int) -> Standing:
    since_ms = now_ms if seen.well_since_ms is None else seen.well_since_ms
    if now_ms - since_ms < condition.keep_firing_for_ms:
        return replace(seen, well_since_ms=since_ms)
    return replace(seen, state=State.RESOLVED, since_ms=now_ms, well_since_ms=None)


@dataclass(frozen=True, slots=True)
class Change:
    """One series before and after a look; the same state with another value is a change too."""

    fingerprint: str
    before: Standing
    after: Standing

    @property
    def is_event(self) -> bool:
        """Whether the state itself changed."""
        return self.before.state is not self.after.state

    @property
    def episode_ms(self) -> int:
        """The episode that the change belongs to, also where it ends it without a trace."""
        return self.after.episode_ms or self.before.episode_ms


@dataclass(frozen=True, slots=True)
class Look:
    """All changes of one look at a rule, and how many violated series were passed over for the bound."""

    changes: tuple[Change, ...]
    passed_over: int


def look(
    condition: Condition,
    standings: Mapping[str, Standing],
    values: Mapping[str, float],
    *,
    now_ms: int,
    active_max: int,
) -> Look:
    """Step every series that is known or seen. New episodes beyond the bound wait, in the order of fingerprints."""
    changes, passed_over = [], 0
    active = sum(standing.state in ACTIVE for standing in standings.values())
    for fingerprint in sorted(standings.keys() | values.keys()):
        before = standings.get(fingerprint, UNKNOWN)
        after = step(condition, before, values.get(fingerprint), now_ms)
        begins = after.state in ACTIVE and before.state not in ACTIVE
        if begins and active >= active_max:
            passed_over += 1
            continue
        active += begins
        if not _same(before, after):
            changes.append(Change(fingerprint, before, after))
    return Look(tuple(changes), passed_over)


def _same(before: Standing, after: Standing) -> bool:
    """Equality under which NaN equals NaN."""
    return repr(before) == repr(after)
