"""Runs rules over history with the code that live judging runs. Pure.

``backtest`` judges all steps at one knowledge, in chunks. ``replay`` follows the operations of a lane, each at the K
that it kept, and gives what the lane said after each of them: the newest operation decides about its steps. A rule that
was written today is tried with it on what was known then. ``notification_times`` says when receivers would have heard.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from alerts.judging import limits
from alerts.judging.answers import Labels, Read
from alerts.judging.automaton import OK, InstanceState
from alerts.judging.reconciliation import Stretch, stretches_of
from alerts.judging.run import InstanceKey, Outcome, States, Transition, incomplete_at, run
from alerts.judging.versions import RuleVersion, Steps


@dataclass(frozen=True, slots=True)
class KnownSteps:
    """The steps (after, upto] and what evaluates at the K at which they were judged. Skipped steps have no ``read``."""

    after_ms: int
    upto_ms: int
    read: Read | None
    behind_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """What all operations so far say: transitions in the order of time, after these states, and labels by name."""

    transitions: tuple[Transition, ...]
    first_states: States
    labels: Mapping[str, Labels]

    def states_at(self, at_ms: int) -> dict[InstanceKey, InstanceState]:
        """Return the states of instances that are not ok after a step."""
        states = dict(self.first_states)
        for each in self.transitions[: self._until(at_ms)]:
            if each.after == OK:
                states.pop(each.key, None)
            else:
                states[each.key] = each.after
        return states

    def replace_after(self, at_ms: int, outcome: Outcome) -> "Line":
        """Return the line in which an outcome stands in place of everything after a step."""
        earlier = self.transitions[: self._until(at_ms)]
        return replace(self, transitions=earlier + outcome.transitions, labels={**self.labels, **outcome.labels})

    def stretches(self) -> Iterator[tuple[InstanceKey, Stretch]]:
        """Yield the stretches in which instances fire, by instance and time."""
        of_key: dict[InstanceKey, list[Transition]] = {key: [] for key in self.first_states}
        for each in self.transitions:
            of_key.setdefault(each.key, []).append(each)
        for key in sorted(of_key):
            for stretch in stretches_of(self.first_states.get(key, OK), of_key[key]):
                yield key, stretch

    def _until(self, at_ms: int) -> int:
        return bisect_right(self.transitions, at_ms, key=lambda each: each.at_ms)


def replay(
    versions: Sequence[RuleVersion],
    operations: Iterable[KnownSteps],
    states: States,
    *,
    period_ms: int,
    active_max: int,
) -> Iterator[Line]:
    """Yield the line after each operation. An operation that goes back replaces what was said of its steps."""
    line = Line((), states, {})
    for operation in operations:
        before = line.states_at(operation.after_ms)
        outcome = Outcome((), before, {})
        if operation.read is not None:
            steps = Steps(operation.after_ms + period_ms, operation.upto_ms, period_ms)
            incomplete = incomplete_at(steps, operation.behind_ms)
            in_force = [
                each
                for each in versions
                if each.from_ms <= steps.last_ms and (each.until_ms is None or each.until_ms > operation.after_ms)
            ]
            outcome = run(
                in_force,
                steps,
                before,
                read=operation.read,
                active_max=active_max,
                incomplete=incomplete,
                labels=line.labels,
            )
        line = line.replace_after(operation.after_ms, outcome)
        yield line


def backtest(
    versions: Sequence[RuleVersion], steps: Steps, states: States, *, open_read: Callable[[], Read], active_max: int
) -> Line:
    """Judge all steps at one knowledge, a chunk at a time, and return the line.

    ``open_read`` returns what evaluates the expressions of one chunk: answers of past chunks need not be kept.
    """
    lines = replay(versions, _chunks(steps, open_read), states, period_ms=steps.period_ms, active_max=active_max)
    [last] = deque(lines, maxlen=1) or [Line((), states, {})]
    return last


def _chunks(steps: Steps, open_read: Callable[[], Read]) -> Iterator[KnownSteps]:
    size_ms = limits.BACKTEST_CHUNK_STEPS * steps.period_ms
    for after_ms in range(steps.first_ms - steps.period_ms, steps.last_ms, size_ms):
        yield KnownSteps(after_ms, min(after_ms + size_ms, steps.last_ms), open_read())


def notification_times(stretches: Iterable[Stretch], *, wait_ms: int, interval_ms: int) -> list[int]:
    """Return when one receiver of a group would get notifications of these stretches.

    A group is flushed a while after its first change, then at most once in an interval; each flush says everything that
    changed since.
    """
    changes = sorted({at for each in stretches for at in (each.start_ms, each.end_ms) if at is not None})
    times, next_ms, said_ms = list[int](), 0, -1
    for at_ms in changes:
        if at_ms > said_ms:
            said_ms = max(at_ms + wait_ms, next_ms)
            next_ms = said_ms + interval_ms
            times.append(said_ms)
    return times
