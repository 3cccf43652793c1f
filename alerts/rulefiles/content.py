"""What a rule file says, as values. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from spm.errors import BadMessage
from spm.limits import RULE_PERIOD_MS


class BadRuleFile(BadMessage):
    """A rule file that cannot be taken: where the mistake is, and what it is."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands: the file, the line from 1 on, the group and the rule, as far as they are known."""

    file: str
    line: int
    group: str = ""
    rule: str = ""

    def __str__(self) -> str:
        names = [f'group "{self.group}"'] if self.group else []
        names += [f'rule "{self.rule}"'] if self.rule else []
        return ", ".join([f"{self.file}, line {self.line}", *names])

    def refuse(self, what: str, *, got: object = None, wanted: object = None, remedy: str = "") -> BadRuleFile:
        """Return the error that names this place."""
        return BadRuleFile(f"{self}: {what}", got=got, wanted=wanted, remedy=remedy)


@dataclass(frozen=True, slots=True)
class AlertContent:
    """An alerting rule. Labels and annotations are templates."""

    name: str
    expr: str
    for_ms: int = 0
    keep_firing_for_ms: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    line: int = 0


@dataclass(frozen=True, slots=True)
class RecordContent:
    """A recording rule."""

    name: str
    expr: str
    labels: Mapping[str, str] = field(default_factory=dict)
    line: int = 0


RuleContent = AlertContent | RecordContent


@dataclass(frozen=True, slots=True)
class GroupContent:
    """A group: rules with one interval (None: the default), a limit of their series, and labels for all of them."""

    name: str
    rules: tuple[RuleContent, ...]
    interval_ms: int | None = None
    limit: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def period_ms(self) -> int:
        """The interval, or the default."""
        return RULE_PERIOD_MS if self.interval_ms is None else self.interval_ms


@dataclass(frozen=True, slots=True)
class RuleFile:
    """A rule file. ``notes`` name what it says and the product does in another way."""

    name: str
    groups: tuple[GroupContent, ...]
    notes: tuple[str, ...] = ()
