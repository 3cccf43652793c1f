"""From the text of a rule file to its content; every mistake is named with its file, line, group and rule. Pure.

Unknown fields are refused, as Prometheus does: a misspelt ``for`` must not be a rule without it. Fields of vmalert that
change nothing here become notes. Enter by ``parse``.
"""

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from yaml.nodes import Node

from alerts.expressions import check_expression
from alerts.rulefiles import limits, nodes
from alerts.rulefiles.content import AlertContent, GroupContent, Place, RecordContent, RuleContent, RuleFile
from alerts.rulefiles.label_names import is_rule_label
from alerts.templating import template
from spm.errors import BadQuery
from spm.limits import (
    RULE_DURATION_MAX_MS,
    RULE_EXPR_CHARS_MAX,
    RULE_FILE_NAME_CHARS_MAX,
    RULE_NAME_CHARS_MAX,
    RULE_PERIOD_MS,
)
from spm.query.formats.prometheus import duration_ms

T = TypeVar("T")
_METRIC = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_GROUP_FIELDS = {"name", "interval", "limit", "labels", "rules"}
_GROUP_NOTES = {
    "query_offset": "rules wait for late data by themselves",
    "eval_delay": "rules wait for late data by themselves",
    "eval_offset": "steps are multiples of the interval",
    "eval_alignment": "steps are multiples of the interval",
    "concurrency": "all rules of an app share their reads",
    "notifier_headers": "receivers have their own settings",
    "debug": "the log has its own settings",
}
_RULE_FIELDS = {"alert", "record", "expr", "for", "keep_firing_for", "labels", "annotations"}
_RULE_NOTES = {"debug": "the log has its own settings", "update_entries_limit": "each rule has its whole history"}


def parse(text: str, file: str) -> RuleFile:
    """Parse a rule file; raises ``BadRuleFile``."""
    place, notes = Place(file, 1), list[str]()
    top = nodes.entries(nodes.compose(text, file), place, "the file")
    for name, (_, at) in top.items():
        if name not in ("groups", "namespace"):
            raise at.refuse(f'unknown field "{name}"', wanted="groups")
    groups = list[GroupContent]()
    if "groups" in top:
        for node, at in nodes.items(top["groups"][0], place, "groups"):
            group = _group(node, at, notes)
            if any(group.name == other.name for other in groups):
                raise at.refuse(f'the group name "{group.name}" stands twice in the file')
            groups.append(group)
    return RuleFile(file, tuple(groups), tuple(dict.fromkeys(notes)))


def _group(node: Node, place: Place, notes: list[str]) -> GroupContent:
    fields = nodes.entries(node, place, "a group")
    name = _text(fields, "name", place, RULE_FILE_NAME_CHARS_MAX)
    if not name:
        raise place.refuse("a group needs a name")
    place = Place(place.file, place.line, name)
    fields = {key: (value, Place(at.file, at.line, name)) for key, (value, at) in fields.items()}
    if _text(fields, "type", place, 40) not in ("", "prometheus"):
        raise fields["type"][1].refuse("groups of this type cannot be judged here", wanted="type: prometheus")
    _check_fields(fields, _GROUP_FIELDS | {"type"}, _GROUP_NOTES, place, notes)
    interval_ms = _duration(fields, "interval", place, limits.INTERVAL_MAX_MS)
    rules = nodes.items(fields["rules"][0], place, "rules") if "rules" in fields else []
    limit = _whole(fields, "limit", place)
    content = tuple(_rule(rule, at, notes) for rule, at in rules)
    if limit and any(isinstance(rule, AlertContent) for rule in content):
        notes.append(f'group "{name}": limit counts for its recording rules; an alerting rule has its own bound')
    if interval_ms and interval_ms % RULE_PERIOD_MS:
        notes.append(f'group "{name}": recorded at the multiples of the interval, rounded up to whole 10s')
    return GroupContent(name, content, interval_ms or None, limit, _labels(fields, "labels", place))


def _rule(node: Node, place: Place, notes: list[str]) -> RuleContent:
    fields = nodes.entries(node, place, "a rule")
    names = [key for key in ("alert", "record") if key in fields]
    if len(names) != 1:
        raise place.refuse("a rule has either alert or record", got=" and ".join(names) or "none of them")
    kind = names[0]
    name = _text(fields, kind, place, RULE_NAME_CHARS_MAX)
    if not name:
        raise place.refuse(f"{kind} needs a name")
    place = Place(place.file, place.line, place.group, name)
    fields = {key: (value, Place(at.file, at.line, at.group, name)) for key, (value, at) in fields.items()}
    _check_fields(fields, _RULE_FIELDS, _RULE_NOTES, place, notes)
    expr, labels = _expression(fields, place), _labels(fields, "labels", place)
    if kind == "record":
        for field in ("for", "keep_firing_for", "annotations"):
            if field in fields:
                raise fields[field][1].refuse(f"a recording rule has no {field}")
        if not _METRIC.fullmatch(name):
            raise fields["record"][1].refuse("not the name of a metric", got=name)
        return RecordContent(name, expr, labels, place.line)
    return AlertContent(
        name,
        expr,
        _duration(fields, "for", place, RULE_DURATION_MAX_MS) or 0,
        _duration(fields, "keep_firing_for", place, RULE_DURATION_MAX_MS) or 0,
        labels,
        _templates(fields, "annotations", place, limits.ANNOTATIONS_MAX, may_query=True),
        place.line,
    )


def _check_fields(
    fields: Mapping[str, tuple[Node, Place]],
    known: set[str],
    noted: Mapping[str, str],
    place: Place,
    notes: list[str],
) -> None:
    for name, (_, at) in fields.items():
        if name in noted:
            notes.append(f'"{name}" has no effect: {noted[name]}')
        elif name not in known:
            raise at.refuse(f'unknown field "{name}"', wanted=", ".join(sorted(known)))


def _text(fields: Mapping[str, tuple[Node, Place]], name: str, place: Place, chars_max: int) -> str:
    if name not in fields:
        return ""
    node, at = fields[name]
    return nodes.text(node, at, name, chars_max=chars_max)


def _expression(fields: Mapping[str, tuple[Node, Place]], place: Place) -> str:
    expr = _text(fields, "expr", place, RULE_EXPR_CHARS_MAX).strip()
    if not expr:
        raise place.refuse("a rule needs an expr")
    _checked(fields["expr"][1], "expr", lambda: check_expression(expr))
    return expr


def _duration(fields: Mapping[str, tuple[Node, Place]], name: str, place: Place, most_ms: int) -> int | None:
    text = _text(fields, name, place, 40)
    if not text:
        return None
    at = fields[name][1]
    if text.replace(".", "").isdigit() and text.strip("0."):
        raise at.refuse(f"{name} needs a unit", got=text, wanted="for example 30s, 5m or 1h30m")
    ms = 0
    if text.strip("0."):
        ms = _checked(at, name, lambda: duration_ms(text))
    if not 0 <= ms <= most_ms:
        raise at.refuse(f"{name} is out of bounds", got=text, wanted=f"0 to {most_ms // 1000}s")
    return ms


def _whole(fields: Mapping[str, tuple[Node, Place]], name: str, place: Place) -> int:
    text = _text(fields, name, place, 40) or "0"
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise fields[name][1].refuse(f"{name} must be a whole number", got=text)
    return int(text)


def _labels(fields: Mapping[str, tuple[Node, Place]], name: str, place: Place) -> dict[str, str]:
    labels = _templates(fields, name, place, limits.LABELS_MAX, may_query=False)
    for label in labels:
        if not is_rule_label(label):
            raise fields[name][1].refuse("not a label that a rule can set", got=label)
    return labels


def _templates(
    fields: Mapping[str, tuple[Node, Place]], name: str, place: Place, most: int, *, may_query: bool
) -> dict[str, str]:
    node, at = fields.get(name, (None, place))
    texts = dict[str, str]()
    for key, (value, here) in nodes.entries(node, at, name).items():
        texts[key] = nodes.text(value, here, f"{name}: {key}", chars_max=limits.LABEL_CHARS_MAX)
        _checked(here, f"{name}: {key}", lambda key=key: template.check(texts[key], may_query=may_query))  # type: ignore[misc]
    if len(texts) > most:
        raise at.refuse(f"too many {name}", got=len(texts), wanted=f"at most {most}")
    return texts


def _checked(place: Place, what: str, act: Callable[[], T]) -> T:
    try:
        return act()
    except BadQuery as error:
        raise place.refuse(f"{what}: {error}") from error
