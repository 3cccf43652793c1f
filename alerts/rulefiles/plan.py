"""Compares a rule file with the rules that exist: what to create, to change and to delete. Pure.

A rule is (file, group, name), and its number among equals where a group has a name several times. Only fields that a
file can say are compared, so what people set besides (receivers, hold) stays. Enter by ``compare``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from alerts.rulefiles.content import AlertContent, GroupContent, RuleContent, RuleFile
from alerts.rulefiles.threshold_split import join, split

Fields = Mapping[str, object]
GROUP, ALERT, RECORD = "group", "alert", "record"
_SEVERITIES = {
    "info": "info",
    "none": "info",
    "warning": "warning",
    "critical": "critical",
    "page": "critical",
    "error": "critical",
}
_ORDERED = "place"  # where it stands; a change of it alone is not worth a line


class Identity(NamedTuple):
    """What a group or rule of a file is."""

    kind: str
    group: str
    name: str = ""
    number: int = 0

    def __str__(self) -> str:
        if self.kind == GROUP:
            return f'group "{self.group}"'
        number = f" #{self.number + 1}" if self.number else ""
        return f'{self.kind} "{self.name}"{number} of group "{self.group}"'


@dataclass(frozen=True, slots=True)
class Change:
    """One difference: ``before`` is None for what is new, ``after`` for what goes; both have the fields that differ."""

    identity: Identity
    before: Fields | None
    after: Fields | None

    def lines(self) -> list[str]:
        """Write the change as lines of a diff."""
        if self.before is None:
            return [f"+ {self.identity}"]
        if self.after is None:
            return [f"- {self.identity}"]
        shown = [name for name in self.after if name != _ORDERED]
        head = f"~ {self.identity}" + ("" if shown else ": moved")
        return [head, *(f"    {name}: {_shown(self.before[name])} → {_shown(self.after[name])}" for name in shown)]


def compare(file: RuleFile | None, stored: Mapping[Identity, Fields]) -> list[Change]:
    """Return what makes the stored groups and rules those of the file; without a file all of them go.

    Groups come before their rules, and what goes comes last.
    """
    wanted = dict(_wanted(file.groups if file else ()))
    changes = [_change(identity, stored.get(identity), fields) for identity, fields in wanted.items()]
    gone = [Change(identity, fields, None) for identity, fields in stored.items() if identity not in wanted]
    gone.sort(key=lambda change: change.identity.kind == GROUP)
    return [*(change for change in changes if change is not None), *gone]


def number_equals(names: Iterable[tuple[str, str, str]]) -> list[Identity]:
    """Return the identities of rules as they stand in a file, given as (kind, group, name)."""
    seen: dict[tuple[str, str, str], int] = {}
    identities = []
    for each in names:
        number = seen.get(each, 0)
        seen[each] = number + 1
        identities.append(Identity(*each, number))
    return identities


def expression_of(fields: Fields) -> str:
    """Return the expression of an alerting rule's fields, as a file says it."""
    return join(str(fields["expr"]), str(fields["comparator"]), float(str(fields["threshold"])))


def _wanted(groups: Iterable[GroupContent]) -> Iterable[tuple[Identity, Fields]]:
    for place, group in enumerate(groups):
        fields = {"interval_ms": group.interval_ms, "limit": group.limit, "labels": dict(group.labels), "place": place}
        yield Identity(GROUP, group.name), fields
        kinds = [ALERT if isinstance(rule, AlertContent) else RECORD for rule in group.rules]
        names = [(kind, group.name, rule.name) for kind, rule in zip(kinds, group.rules, strict=True)]
        for at, (identity, rule) in enumerate(zip(number_equals(names), group.rules, strict=True)):
            yield identity, _fields(rule, group, at)


def _fields(rule: RuleContent, group: GroupContent, place: int) -> Fields:
    if not isinstance(rule, AlertContent):
        return {"expr": rule.expr, "labels": dict(rule.labels), "place": place}
    condition = split(rule.expr)
    severity = {**group.labels, **rule.labels}.get("severity", "").lower()
    return {
        "kind": "threshold",
        "expr": condition.expr,
        "comparator": condition.comparator,
        "threshold": condition.threshold,
        "for_ms": rule.for_ms,
        "keep_firing_for_ms": rule.keep_firing_for_ms,
        "severity": _SEVERITIES.get(severity, "warning"),
        "labels": dict(rule.labels),
        "annotations": dict(rule.annotations),
        "place": place,
    }


def _change(identity: Identity, before: Fields | None, after: Fields) -> Change | None:
    if before is None:
        return Change(identity, None, after)
    names = [name for name, value in after.items() if not _equal(before[name], value)]
    if not names:
        return None
    return Change(identity, {name: before[name] for name in names}, {name: after[name] for name in names})


def _equal(left: object, right: object) -> bool:
    return left == right or (left != left and right != right)  # a threshold may be NaN


def _shown(value: object) -> str:
    text = "none" if value is None or value == "" or value == {} else str(value)
    return text if len(text) <= 200 else f"{text[:200]}…"
