"""The versions of a rule: its content from a step on. A version never changes; another one follows it. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from alerts.judging.automaton import Timing
from alerts.judging.conditions import Condition
from alerts.judging.kinds import Kind, Parameters, value_expr
from alerts.judging.selections import traits_of


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps first, first + period, …, last, in milliseconds; empty if last < first."""

    first_ms: int
    last_ms: int
    period_ms: int

    def __len__(self) -> int:
        return max(0, (self.last_ms - self.first_ms) // self.period_ms + 1)

    def at_ms(self, index: int) -> int:
        """Return the time of a step."""
        return self.first_ms + index * self.period_ms

    def index_from(self, time_ms: int) -> int:
        """Return the index of the first step that is not before a time."""
        return -(-(time_ms - self.first_ms) // self.period_ms)


@dataclass(frozen=True, slots=True)
class Closing:
    """A person ends the alert of an instance of the rule at a step."""

    fingerprint: str
    aspect: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class AlertNaming:
    """What names the alerts of a rule in ``ALERTS``: its name and labels, which are templates, and where it stands.

    ``place``: of its group in its file, and its own in that group. Alerts without a name have no series.
    """

    name: str
    labels: tuple[tuple[str, str], ...] = ()
    file: str = ""
    place: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class RuleVersion:
    """What a rule was from the step ``from_ms`` until before ``until_ms`` (None: it still is).

    ``ended`` says why the rule is not judged in this version: "deleted", "switched off", or "" if it is judged.
    ``missing_for_ms`` counts if the absence of a series is an alert of its own. ``fault`` says why the rule cannot be
    judged, whatever its data: each step is an error of it, and its series stay as they are. ``closings`` are the steps
    at which people ended alerts of the rule, whatever its version then was. ``alert`` names its alerts for rules that
    read them; versions of before that was kept have none.
    """

    rule: int
    from_ms: int
    until_ms: int | None
    expr: str
    condition: Condition
    timing: Timing
    missing_for_ms: int = 0
    ended: str = ""
    kind: Kind = Kind.THRESHOLD
    parameters: Parameters = field(default_factory=Parameters)
    fault: str = ""
    closings: tuple["Closing", ...] = ()
    alert: AlertNaming | None = None

    @property
    def value_expr(self) -> str:
        """The expression whose values are judged."""
        return value_expr(self.kind, self.expr, self.parameters)

    @property
    def is_collective(self) -> bool:
        """Whether its value is wrong, and not only missing, while some sources have not sent yet."""
        return self.kind is Kind.HEARTBEAT or traits_of(self.value_expr).is_collective

    def selects_anew(self, before: "RuleVersion") -> bool:
        """Whether the series of the version before may be no series of this one."""
        if before.fault:
            return False
        own, old = self.condition.comparator, before.condition.comparator
        is_same = self.value_expr == before.value_expr and self.kind == before.kind
        return not is_same or self.parameters.by != before.parameters.by or bool(own) != bool(old)


def stretches(versions: Iterable[RuleVersion], steps: Steps) -> Iterator[tuple[RuleVersion, RuleVersion | None, Steps]]:
    """Yield each version of one rule with the one before it and the steps at which it is in force, in order.

    The version before is None where no version change falls into the steps.
    """
    before: RuleVersion | None = None
    for version in sorted(versions, key=lambda each: each.from_ms):
        first = steps.at_ms(max(0, steps.index_from(version.from_ms)))
        until = steps.last_ms if version.until_ms is None else min(steps.last_ms, version.until_ms - 1)
        last = first + (until - first) // steps.period_ms * steps.period_ms
        part = Steps(first, last, steps.period_ms)
        if len(part):
            is_edit = first - steps.period_ms < version.from_ms
            yield version, before if is_edit else None, part
        if version.from_ms <= steps.last_ms:
            before = version


def by_rule(versions: Sequence[RuleVersion]) -> dict[int, list[RuleVersion]]:
    """Group versions by their rule, rules in order."""
    groups: dict[int, list[RuleVersion]] = {}
    for version in sorted(versions, key=lambda each: (each.rule, each.from_ms)):
        groups.setdefault(version.rule, []).append(version)
    return groups
