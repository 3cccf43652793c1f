"""How long until an alert fires or resolves: one input at one step gives the next state of its automaton. Pure.

    ok ──V──▶ pending ──V for ``for``──▶ firing ──W──▶ recovering ──W for ``keep firing``──▶ ok
    ▲            │                          ▲                │
    └──B, W──────┘                          └─────V, B───────┘

Without ``for`` a violated instance fires at once; without ``keep firing`` a firing one is ok at its first W. Timers
complete only on V or W: nothing fires or recovers by waiting while its data is missing (M) or cannot be judged (H).
Missing data keeps the state for ``hold`` and then ends it; G, which says that the series or its rule is gone, ends it
at once. What a person has ended (``close``) stays closed until it is well, so that it does not fire anew at the next
step. All times are steps, so a judge that slept judges exactly as one that did not. Enter by ``step``.
"""

from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum


class Phase(StrEnum):
    """Where an instance is. "Resolved" is no phase: it is the end of an episode."""

    OK = "ok"
    PENDING = "pending"
    FIRING = "firing"
    RECOVERING = "recovering"
    CLOSED = "closed"  # a person ended its episode, and it has not been well since


class Input(IntEnum):
    """What one step says of an instance."""

    VIOLATED = 0
    BETWEEN = 1  # no longer over the threshold, not yet over the recovery threshold
    WELL = 2
    MISSING = 3  # not in the answer, or NaN
    UNJUDGED = 4  # cannot be judged at this step
    GONE = 5  # forgotten, deleted, switched off, or no longer selected after an edit


ALERTING = frozenset({Phase.FIRING, Phase.RECOVERING})


@dataclass(frozen=True, slots=True)
class Timing:
    """The durations of a rule, in milliseconds. ``firing_max_ms``: an instance that fires so long is gone for good."""

    for_ms: int = 0
    keep_firing_for_ms: int = 0
    hold_ms: int = 0
    firing_max_ms: int | None = None


@dataclass(frozen=True, slots=True)
class InstanceState:
    """The record of one instance.

    ``since_ms`` is the step at which the phase began, ``start_ms`` the first firing step of the present episode,
    ``active_ms`` the step at which it left ok, and ``missing_ms`` the first step of the present gap in its data.
    """

    phase: Phase = Phase.OK
    since_ms: int | None = None
    start_ms: int | None = None
    active_ms: int | None = None
    missing_ms: int | None = None

    @property
    def is_alerting(self) -> bool:
        """Whether an episode is open: firing, or recovering from it."""
        return self.phase in ALERTING


OK = InstanceState()


def step(timing: Timing, state: InstanceState, given: Input, at_ms: int) -> InstanceState:
    """Return the state after the step ``at_ms`` with this input."""
    if given is Input.UNJUDGED:
        return state
    if given is Input.GONE:
        return OK
    if given is Input.MISSING:
        return _wait_for_data(timing, state, at_ms)
    present = state if state.missing_ms is None else replace(state, missing_ms=None)
    return _NEXT[present.phase](timing, present, given, at_ms)


def close(state: InstanceState, at_ms: int) -> InstanceState:
    """Return the state after a person has ended its episode at this step; one that does not alert stays as it is."""
    if not state.is_alerting:
        return state
    return replace(state, phase=Phase.CLOSED, since_ms=at_ms, start_ms=None)


def due_ms(timing: Timing, state: InstanceState, given: Input) -> int | None:
    """Return the first time at which ``step`` changes a state that this input has reached already; None: never."""
    if state.phase is Phase.OK:
        return None
    if given is Input.MISSING and state.missing_ms is not None:
        return state.missing_ms + timing.hold_ms
    if given is Input.VIOLATED and state.phase is Phase.PENDING:
        return _after(state.since_ms, timing.for_ms)
    if given is Input.WELL and state.phase is Phase.RECOVERING:
        return _after(state.since_ms, timing.keep_firing_for_ms)
    if given is Input.VIOLATED and state.phase is Phase.FIRING and timing.firing_max_ms is not None:
        return _after(state.start_ms, timing.firing_max_ms)
    return None


def _wait_for_data(timing: Timing, state: InstanceState, at_ms: int) -> InstanceState:
    if state.phase is Phase.OK:
        return OK
    missing_ms = at_ms if state.missing_ms is None else state.missing_ms
    return OK if at_ms - missing_ms >= timing.hold_ms else replace(state, missing_ms=missing_ms)


def _from_ok(timing: Timing, state: InstanceState, given: Input, at_ms: int) -> InstanceState:
    if given is not Input.VIOLATED:
        return OK
    if timing.for_ms:
        return InstanceState(Phase.PENDING, since_ms=at_ms, active_ms=at_ms)
    return InstanceState(Phase.FIRING, since_ms=at_ms, start_ms=at_ms, active_ms=at_ms)


def _from_pending(timing: Timing, state: InstanceState, given: Input, at_ms: int) -> InstanceState:
    if given is not Input.VIOLATED:
        return OK
    if at_ms < _after(state.since_ms, timing.for_ms):
        return state
    return replace(state, phase=Phase.FIRING, since_ms=at_ms, start_ms=at_ms)


def _from_firing(timing: Timing, state: InstanceState, given: Input, at_ms: int) -> InstanceState:
    if given is Input.WELL:
        return replace(state, phase=Phase.RECOVERING, since_ms=at_ms) if timing.keep_firing_for_ms else OK
    limit_ms = timing.firing_max_ms if given is Input.VIOLATED else None
    return state if limit_ms is None or at_ms < _after(state.start_ms, limit_ms) else OK


def _from_recovering(timing: Timing, state: InstanceState, given: Input, at_ms: int) -> InstanceState:
    if given is not Input.WELL:
        return replace(state, phase=Phase.FIRING, since_ms=at_ms)
    return OK if at_ms >= _after(state.since_ms, timing.keep_firing_for_ms) else state


def _from_closed(timing: Timing, state: InstanceState, given: Input, at_ms: int) -> InstanceState:
    return OK if given is Input.WELL else state


def _after(start_ms: int | None, duration_ms: int) -> int:
    assert start_ms is not None, "BUG: a phase without the step at which it began"
    return start_ms + duration_ms


_NEXT = {
    Phase.OK: _from_ok,
    Phase.PENDING: _from_pending,
    Phase.FIRING: _from_firing,
    Phase.RECOVERING: _from_recovering,
    Phase.CLOSED: _from_closed,
}
