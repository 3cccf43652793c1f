"""Tries where an alert with given labels would go, and says of each policy why. Nothing is sent or written.

It walks the tree with the code that routes alerts (``decide.routing``). Enter by ``try_route``; ``tree_of`` lists the
policies in the order in which alerts come to them.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from alerts.models.telling import Policy
from alerts.telling import limits
from alerts.telling.configuration import read_configuration
from alerts.telling.decide.matchers import parse_matchers, select
from alerts.telling.decide.routing import Visit, walk
from alerts.telling.decide.windows import windows
from spm.errors import BadQuery
from spm.store.matchers import Matcher


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one policy does with the alert: whether it takes it, why, and the labels of its group if it does."""

    policy: Policy
    depth: int
    takes: bool
    reason: str
    group: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RouteTest:
    """The verdict of every policy, in the order of the tree, and what keeps the alert from being told now."""

    verdicts: Sequence[Verdict]
    mutes: Sequence[str]


def read_labels(text: str) -> dict[str, str]:
    """Read the labels of an alert, as in a selector: ``severity="critical", host="a"``; raises ``BadQuery``.

    An alert may have more of them, and longer ones, than matchers that choose it.
    """
    matchers = parse_matchers(text)
    if any(each.op != "=" for each in matchers):
        raise BadQuery('an alert has labels with values, such as severity="critical", host="a"')
    labels = {each.name: each.value for each in matchers}
    if len(labels) < len(matchers):
        raise BadQuery("a label has one value: write each name once")
    return labels


def labels_text(labels: Mapping[str, str]) -> str:
    """Write labels so that ``read_labels`` reads them."""
    return ", ".join(_text(Matcher(name, "=", value)) for name, value in labels.items() if value)


def tree_of(organisation: int) -> list[tuple[Policy, int]]:
    """List the policies, each with its depth, in the order in which an alert comes to them."""
    rows = Policy.objects.filter(organisation=organisation).select_related("contact_point")
    rows = rows.prefetch_related("escalation__contact_point")
    return list(_below(list(rows[: limits.POLICIES_MAX]), None, 0))


def try_route(organisation: int, labels: Mapping[str, str], now_ms: int) -> RouteTest:
    """Say where an alert with these labels would go now, besides the receivers of its rule."""
    configuration = read_configuration(organisation, now_ms)
    visits = {visit.policy.id: visit for visit in walk(configuration.policies, labels)}
    verdicts = [_verdict(row, depth, visits, labels) for row, depth in tree_of(organisation)]
    silences = [each.cover for each in configuration.silences if select(each.matchers, [labels])[0]]
    timings = [each for each in configuration.timings if select(each.matchers, [labels])[0]]
    covers = [*silences, *(cover for each in timings for cover in windows(each, from_ms=now_ms, to_ms=now_ms))]
    return RouteTest(verdicts, [cover.reason for cover in covers if cover.holds(now_ms)])


def _below(rows: Sequence[Policy], parent: int | None, depth: int) -> Iterator[tuple[Policy, int]]:
    for row in rows:
        if row.parent_id == parent:
            yield row, depth
            yield from _below(rows, row.pk, depth + 1)


def _verdict(row: Policy, depth: int, visits: Mapping[int, Visit], labels: Mapping[str, str]) -> Verdict:
    visit = visits.get(row.pk)
    takes = visit is not None and visit.takes
    group = {name: labels.get(name, "") for name in row.group_by} if takes else {}
    return Verdict(row, depth, takes, _reason(row, visit, visits, labels), group)


def _reason(row: Policy, visit: Visit | None, visits: Mapping[int, Visit], labels: Mapping[str, str]) -> str:
    if visit is None:
        above = None if row.parent_id is None else visits.get(row.parent_id)
        is_open = row.parent_id is None or (above is not None and above.differs is None)
        return "a policy before it took the alert" if is_open else "the alert does not come here"
    if visit.differs is not None:
        return f"{_actual(visit.differs, labels)}; this takes {_text(visit.differs)}"
    if not visit.takes:
        return "it matches, and one below it takes the alert"
    return "it matches, and none below it does" if visit.policy.children else "it matches"


def _actual(matcher: Matcher, labels: Mapping[str, str]) -> str:
    value = labels.get(matcher.name)
    return f"{matcher.name} is {json.dumps(value, ensure_ascii=False)}" if value else f"there is no {matcher.name}"


def _text(matcher: Matcher) -> str:
    return f"{matcher.name}{matcher.op}{json.dumps(matcher.value, ensure_ascii=False)}"
