"""Where an alert goes: the receivers that its rule names, and those of every policy that matches it.

Policies are a tree. An alert walks down from the roots: of the children of a policy the first that matches takes it,
and the next ones only if that one says ``goes_on``. A policy none of whose children takes the alert takes it itself.
The rule's own receivers always hear of it; a policy adds receivers and takes none away. Enter by ``routes``, or by
``walk`` to see why.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from alerts.telling.decide.matchers import Matchers, select
from alerts.telling.decide.timing import Waits
from spm.store.matchers import Matcher


@dataclass(frozen=True, slots=True)
class PolicyNode:
    """One policy of the tree with its children, in order."""

    id: int
    matchers: Matchers
    receivers: frozenset[int]
    group_by: tuple[str, ...] = ()
    waits: Waits = field(default_factory=Waits)
    goes_on: bool = False
    children: "tuple[PolicyNode, ...]" = ()
    escalation: "tuple[Escalation, ...]" = ()


@dataclass(frozen=True, slots=True)
class Escalation:
    """Receivers that hear of an alert that is still open after a time and that nobody has acknowledged."""

    after_ms: int
    receivers: frozenset[int]


@dataclass(frozen=True, slots=True)
class Route:
    """Receivers of an alert, and how it is grouped for them; ``policy`` is None for the rule's own receivers.

    ``after_ms`` is 0, or that of the step of escalation by which they come.
    """

    policy: int | None
    receivers: frozenset[int]
    group: tuple[tuple[str, str], ...]
    waits: Waits
    after_ms: int = 0


def routes(roots: Sequence[PolicyNode], own: frozenset[int], *, rule: int, labels: Mapping[str, str]) -> list[Route]:
    """Return the routes of an alert: the rule's own receivers, grouped by rule, then the policies that match.

    Steps of escalation follow, the earliest first: a receiver on several routes is on the first.
    """
    first = [Route(None, own, (("rule", str(rule)),), Waits())] if own else []
    every = [route for policy in matching_policies(roots, labels) for route in _routes(policy, labels)]
    return first + sorted(every, key=lambda route: route.after_ms)


def escalation(
    first: frozenset[int], steps: Sequence[Escalation], unreachable: frozenset[int]
) -> tuple[Escalation, ...]:
    """Return the steps, the earliest first, with the times at which they come after the receivers ``first``.

    One that follows receivers none of whom can be reached comes when these do: nobody is waited for in vain.
    """
    came_ms, before, came = 0, first, list[Escalation]()
    for step in steps:
        came_ms = step.after_ms if before - unreachable else came_ms
        came.append(replace(step, after_ms=came_ms))
        before = step.receivers
    return tuple(came)


def matching_policies(roots: Sequence[PolicyNode], labels: Mapping[str, str]) -> list[PolicyNode]:
    """Return the policies that take an alert with these labels, in the order of the tree."""
    return [visit.policy for visit in walk(roots, labels) if visit.takes]


@dataclass(frozen=True, slots=True)
class Visit:
    """A policy that an alert comes to: the first matcher that does not select it, and whether it takes it itself."""

    policy: PolicyNode
    differs: Matcher | None
    takes: bool


def walk(roots: Sequence[PolicyNode], labels: Mapping[str, str]) -> list[Visit]:
    """Return the policies that an alert with these labels comes to, in the order of its walk."""
    visits: list[Visit] = []
    for policy in roots:
        if not select(policy.matchers, [labels])[0]:
            differs = next(each for each in policy.matchers if not select((each,), [labels])[0])
            visits.append(Visit(policy, differs, takes=False))
            continue
        below = walk(policy.children, labels)
        visits += [Visit(policy, None, takes=all(visit.differs for visit in below)), *below]
        if not policy.goes_on:
            break
    return visits


def _routes(policy: PolicyNode, labels: Mapping[str, str]) -> Iterator[Route]:
    group = tuple((name, labels.get(name, "")) for name in policy.group_by)
    yield Route(policy.id, policy.receivers, group, policy.waits)
    for step in policy.escalation:
        yield Route(policy.id, step.receivers, group, policy.waits, step.after_ms)
