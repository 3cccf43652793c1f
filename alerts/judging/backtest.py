"""Runs rules over history with the code that live judging runs. Pure.

``backtest`` judges all steps at one knowledge, in chunks. ``replay`` follows the operations of a lane, each at the K
that it kept, and gives what the lane said after each of them: the newest operation decides about its steps. A rule that
was written today is tried with it on what was known then. ``notification_times`` says when receivers would have heard.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Protocol

from alerts.judging import limits
from alerts.judging.answers import Labels, Read
from alerts.judging.automaton import OK, InstanceState
from alerts.judging.instances.keys import InstanceKey, States, Transition
from alerts.judging.readers.run_alerts import Past
from alerts.judging.reconciliation import Stretch, stretches_of
from alerts.judging.run import Outcome, incomplete_at, run
from alerts.judging.versions import RuleVersion, Steps


@dataclass(frozen=True, slots=True)
class KnownSteps:
    """The steps (after, upto] and what evaluates at the K at which they were judged. Skipped steps have no ``read``."""

    after_ms: int
    upto_ms: int
    read: Read | None
    behind_ms: int | None = None


class Line:
    """What all operations so far say: transitions in the order of time, after these states, and labels by name.

    An operation changes the end of the line only, so it costs what it changes, however long the line is.
    """

    def __init__(self, first_states: States) -> None:
        self.first_states, self.labels = dict(first_states), dict[str, Labels]()
        self.transitions: list[Transition] = []
        self._states = dict(first_states)  # after the last transition

    def states_at(self, at_ms: int) -> dict[InstanceKey, InstanceState]:
        """Return the states of instances that are not ok after a step."""
        states = dict(self._states)
        for each in reversed(self.transitions[self._until(at_ms) :]):
            if each.before == OK:
                states.pop(each.key, None)
            else:
                states[each.key] = each.before
        return states

    def past(self, at_ms: int) -> Past:
        """Return what it says of the steps before one, for rules that read alerts: as far as judging looks back."""
        first_ms = at_ms - limits.LOOK_BACK_MS
        return Past(first_ms, self.states_at(first_ms), self.transitions[self._until(first_ms) : self._until(at_ms)])

    def replace_after(self, at_ms: int, outcome: Outcome) -> list[Transition]:
        """Put an outcome in place of everything after a step; returns the transitions that it replaces."""
        until = self._until(at_ms)
        replaced, self.transitions[until:] = self.transitions[until:], outcome.transitions
        self._states = dict(outcome.states)
        self.labels.update(outcome.labels)
        return replaced

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


@dataclass(frozen=True, slots=True)
class Said:
    """What an operation says after its first step, in place of what was said before, and the line that it leads to.

    The line goes on to change with the next operation.
    """

    line: Line
    transitions: Sequence[Transition]
    replaced: Sequence[Transition]


def replay(
    versions: Sequence[RuleVersion],
    operations: Iterable[KnownSteps],
    states: States,
    *,
    period_ms: int,
    active_max: int,
    is_stored: bool = True,
) -> Iterator[Said]:
    """Yield what each operation says. One that goes back replaces what was said of its steps.

    ``is_stored``: ``ALERTS`` of past steps are those that live judging stored; else, those of this line.
    """
    line = Line(states)
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
                past=None if is_stored else line.past(operation.after_ms),
            )
        yield Said(line, outcome.transitions, line.replace_after(operation.after_ms, outcome))


def backtest(
    versions: Sequence[RuleVersion], steps: Steps, states: States, *, open_read: Callable[[], Read], active_max: int
) -> Line:
    """Judge all steps at one knowledge, a chunk at a time, and return the line.

    ``open_read`` returns what evaluates the expressions of one chunk: answers of past chunks need not be kept.
    """
    chunks = _chunks(steps, open_read)
    said = replay(versions, chunks, states, period_ms=steps.period_ms, active_max=active_max, is_stored=False)
    return last_line(said, states)


def last_line(said: Iterable[Said], states: States) -> Line:
    """Return the line that all operations lead to, from these states on."""
    last = deque(said, maxlen=1)
    return last[0].line if last else Line(states)


def _chunks(steps: Steps, open_read: Callable[[], Read]) -> Iterator[KnownSteps]:
    size_ms = limits.BACKTEST_CHUNK_STEPS * steps.period_ms
    for after_ms in range(steps.first_ms - steps.period_ms, steps.last_ms, size_ms):
        yield KnownSteps(after_ms, min(after_ms + size_ms, steps.last_ms), open_read())


class Cover(Protocol):
    """A stretch [from_ms, to_ms) in which nothing is told first; ``to_ms`` is None while its end is not known."""

    @property
    def from_ms(self) -> int: ...
    @property
    def to_ms(self) -> int | None: ...


def notification_times(
    stretches: Iterable[Stretch], *, wait_ms: int, interval_ms: int, covers: Sequence[Cover] = ()
) -> list[int]:
    """Return when one receiver of a group would get notifications of these stretches.

    A group is flushed a while after an alert began, or when one ends, at most once in an interval; each flush says
    everything that changed since. What begins in a cover is told when that ends, if it still goes on. The end of what
    was told is told at any time.
    """
    firsts = [(_exposed(each, covers), number, each) for number, each in enumerate(stretches)]
    changes = [(at_ms, number, each) for at_ms, number, each in firsts if at_ms is not None]
    heapify(changes)
    times, said_ms, announced = list[int](), -1, set[int]()
    while changes:
        at_ms, number, stretch = heappop(changes)
        is_first = number not in announced
        next_ms = times[-1] + interval_ms if times else 0
        flush_ms = said_ms if at_ms <= said_ms else max(at_ms, stretch.start_ms + wait_ms, next_ms)
        if is_first and (cover := _cover_at(covers, flush_ms)):
            if cover.to_ms is not None:
                heappush(changes, (cover.to_ms, number, stretch))
            continue
        if is_first and stretch.end_ms is not None and stretch.end_ms > flush_ms:
            heappush(changes, (stretch.end_ms, number, stretch))
        announced.add(number)
        if flush_ms > said_ms:
            said_ms = flush_ms
            times.append(flush_ms)
    return times


def _exposed(stretch: Stretch, covers: Sequence[Cover]) -> int | None:
    """Return the first time of the stretch that lies in no cover; None if there is none."""
    at_ms = stretch.start_ms
    while cover := _cover_at(covers, at_ms):
        if cover.to_ms is None:
            return None
        at_ms = cover.to_ms
    return at_ms if stretch.end_ms is None or at_ms < stretch.end_ms else None


def _cover_at(covers: Sequence[Cover], at_ms: int) -> Cover | None:
    """Return the cover that holds at a time, of covers in order that do not overlap."""
    place = bisect_right(covers, at_ms, key=lambda each: each.from_ms) - 1
    cover = covers[place] if place >= 0 else None
    return cover if cover is not None and (cover.to_ms is None or at_ms < cover.to_ms) else None
