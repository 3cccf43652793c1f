"""Which rules read the alerts of others, and in which order rules are judged for that. Pure.

1. Rules that read no alerts come first, by their numbers, and composites of them after them: one scan for all steps.
2. Readers follow in the order of their files, groups and places, and then composites that name one.
3. A reader sees at a step what those before it say of that step, as Prometheus judges the rules of a group one after
   the other. Of itself, of those after it, and of rules behind it in its file it sees the step before. Then readers are
   judged step by step.

Enter by ``order``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from alerts.judging import composites
from alerts.judging.kinds import Kind
from alerts.judging.selections import selectors_of
from alerts.judging.versions import AlertNaming, RuleVersion
from spm.errors import BadQuery
from spm.query.promql.planning import plan
from spm.store.matchers import METRIC_NAME, mask

ALERTS, FOR_STATE = "ALERTS", "ALERTS_FOR_STATE"
_LAST = "\U0010ffff"


@dataclass(frozen=True, slots=True)
class JudgingOrder:
    """The rules in the order of judging: ``first`` read no alerts, ``late`` do, or name a rule that does.

    ``circle`` says why composites have no order, if they have none: they cannot be judged, the other rules can.
    """

    first: Sequence[int]
    late: Sequence[int] = ()
    circle: str = ""
    is_stepwise: bool = False
    seen: Mapping[int, Mapping[int, bool]] = field(default_factory=dict)  # reader → rule → whether at the same step


def reads_alerts(expr: str) -> bool:
    """Whether an expression reads alerts of any rule."""
    return any(_may_be(each, (ALERTS, FOR_STATE), METRIC_NAME) for each in selectors_of(expr))


def may_read(expr: str, naming: AlertNaming) -> bool:
    """Whether an expression may read alerts of this name and labels. An alert without a name has no series."""
    known = {name: text for name, text in naming.labels if "{{" not in text} | {"alertname": naming.name}
    return naming.name != "" and any(
        _may_be(each, (ALERTS, FOR_STATE), METRIC_NAME)
        and all(_may_be(each, (text,), label) for label, text in known.items())
        for each in selectors_of(expr)
    )


def order(rules: Mapping[int, Sequence[RuleVersion]]) -> JudgingOrder:
    """Return the order of rules, of which these versions are judged."""
    parts = _parts_of(rules)
    readers = {rule for rule, versions in rules.items() if any(is_reader(each) for each in versions)}
    late, circle = set(readers), ""
    try:
        in_order = composites.order(parts)
    except BadQuery as refusal:
        in_order, circle = list(parts), str(refusal)
    for rule in in_order:
        if parts[rule] & late:
            late.add(rule)
    first = [rule for rule in rules if rule not in parts and rule not in late]
    first += [rule for rule in in_order if rule not in late]
    followers = [rule for rule in in_order if rule in late and rule not in readers]
    last = sorted(readers, key=lambda rule: _place(rule, rules[rule])) + followers
    seen = _seen(readers, last, rules)
    is_stepwise = not all(is_same for of_reader in seen.values() for is_same in of_reader.values())
    return JudgingOrder(first, last, circle, is_stepwise, seen)


def _parts_of(rules: Mapping[int, Sequence[RuleVersion]]) -> dict[int, frozenset[int]]:
    """Return the rules that each composite names."""
    parts: dict[int, frozenset[int]] = {}
    for rule, versions in rules.items():
        named = [composites.parse(each.expr).rules for each in versions if _is_parsed_composite(each)]
        if named:
            parts[rule] = frozenset().union(*named)
    return parts


def _is_parsed_composite(version: RuleVersion) -> bool:
    if version.kind is not Kind.COMPOSITE:
        return False
    try:
        composites.parse(version.expr)
    except BadQuery:
        return False
    return True


def is_reader(version: RuleVersion) -> bool:
    """Whether a version reads alerts; what a fault of ours hides is an error when it is judged."""
    if version.kind is Kind.COMPOSITE or version.fault or version.ended:
        return False
    try:
        return reads_alerts(version.value_expr)
    except Exception:  # a loop's top: one rule must not stop its lane
        return False


def _place(rule: int, versions: Sequence[RuleVersion]) -> tuple[str, tuple[int, int], int]:
    naming = versions[-1].alert
    return (naming.file, naming.place, rule) if naming else (_LAST, (0, 0), rule)


def _seen(
    readers: Iterable[int], late: Sequence[int], rules: Mapping[int, Sequence[RuleVersion]]
) -> dict[int, dict[int, bool]]:
    """Return the rules of which each reader may see alerts, and whether it sees those of the same step."""
    turn = {rule: number for number, rule in enumerate(late)}
    namings = {rule: {each.alert for each in versions if each.alert} for rule, versions in rules.items()}
    seen: dict[int, dict[int, bool]] = {reader: {} for reader in readers}
    for reader, of_reader in seen.items():
        exprs = {each.value_expr for each in rules[reader]}
        for rule, own in namings.items():
            if any(may_read(expr, naming) for expr in exprs for naming in own):
                is_before = turn.get(rule, -1) < turn[reader]
                of_reader[rule] = is_before and not _is_behind(rules[rule][-1], rules[reader][-1])
    return seen


def _is_behind(version: RuleVersion, reader: RuleVersion) -> bool:
    """Whether a rule stands behind a reader in the same file."""
    own, other = version.alert, reader.alert
    return own is not None and other is not None and own.file == other.file != "" and own.place > other.place


def _may_be(selector: plan.Selector, texts: Sequence[str], label: str) -> bool:
    """Whether one of these texts of a label is what the selector wants."""
    matchers = [each for each in selector.matchers if each.name == label]
    return any(all(mask([text], each)[0] for each in matchers) for text in texts)
