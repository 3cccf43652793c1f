"""The alerts of a run under way, as rules that read ``ALERTS`` see them in place of what is stored. Pure.

What is stored of a step is written after the step was judged, and is not written again when it is judged again. So from
a step on, ``ALERTS`` of the rules of a run are what the run says of them; ``Read`` that can take them is a
``ReadsAlerts``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from alerts.judging.answers import Answer, Labels, Read
from alerts.judging.automaton import InstanceState
from alerts.judging.instances.keys import InstanceKey, States, Transition
from alerts.judging.versions import AlertNaming, Steps


@dataclass(frozen=True, slots=True)
class Past:
    """What was said before a run: the states at a step, and the transitions between it and the run's first step."""

    at_ms: int
    states: States
    transitions: Sequence[Transition] = ()


@dataclass(frozen=True, slots=True)
class RunAlerts:
    """What some rules say at some steps: the states at the first one, and the transitions of each rule that count.

    ``names`` are those of all alerts of the run: of these, nothing counts that is stored from the first step on.
    """

    steps: Steps
    states: Mapping[InstanceKey, InstanceState]
    transitions: Sequence[Transition]
    ends: Mapping[int, int]  # of each rule: up to which step it is seen
    namings: Mapping[int, AlertNaming]
    labels: Mapping[str, Labels]
    names: frozenset[str]


@runtime_checkable
class ReadsAlerts(Protocol):
    """Evaluates expressions, and can take the alerts of a run in place of those that are stored."""

    def __call__(self, expr: str, steps: Steps, /) -> Answer:
        """Return the answer of an expression at some steps."""

    def with_alerts(self, alerts: RunAlerts) -> Read:
        """Return what evaluates expressions that see these alerts."""
