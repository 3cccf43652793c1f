"""`label_replace` and `label_join`: compute a label from other labels.

The regular expression comes from a user, so it runs in RE2 (through Arrow), anchored at both ends, once over the
distinct values of the source label, in portions between which the deadline is checked. A label that becomes empty is
removed. A series whose metric name is written keeps that name.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from spm.errors import QueryFailed, QueryTooLarge
from spm.limits import LABEL_VALUE_BYTES_MAX
from spm.query.promql.operators.vector import Vector, merge_rows
from spm.query.promql.syntax.patterns import cuts_characters, name_groups
from spm.query.request.batches import METRIC_NAME, DeadlineCheck, no_deadline
from spm.store.encoding.arrow import strings
from spm.store.matchers import portions, too_many_classes

_WHOLE_MATCH = "spm0"
_REFERENCE = re.compile(r"\$(?:(\$)|\{(\w+)\}|(\w+))", re.ASCII)


def relabel(
    function: str, vector: Vector, texts: tuple[str, ...], check_deadline: DeadlineCheck = no_deadline
) -> Vector:
    """Sets one label from others; series that get equal labels are merged if they have no step in common."""
    target = texts[0]
    if not target:
        raise QueryFailed(f"invalid destination label name in {function}(): {target}")
    if function == "label_replace":
        values = _replace(vector, *texts[1:], check_deadline=check_deadline)
    else:
        values = _join(vector, texts[1], texts[2:])
    labels, nameless = [], vector.nameless.copy()
    for row, (old, text) in enumerate(zip(vector.labels, values, strict=True)):
        labels.append(old if text is None else _with_label(old, target, text))
        nameless[row] &= text is None or target != METRIC_NAME
    return merge_rows([Vector(labels, vector.values, vector.present, nameless)])


def _with_label(labels: dict[str, str], name: str, text: str) -> dict[str, str]:
    others = {known: value for known, value in labels.items() if known != name}
    return others | {name: text} if text else others


def _join(vector: Vector, separator: str, sources: tuple[str, ...]) -> list[str | None]:
    if not all(sources):
        raise QueryFailed("invalid source label name in label_join(): ")
    texts: list[str | None] = []
    for labels in vector.labels:
        parts = [labels.get(name, "") for name in sources]
        texts.append(_join_bounded(separator, parts))
    return texts


def _replace(
    vector: Vector, replacement: str, source: str, regex: str, *, check_deadline: DeadlineCheck
) -> list[str | None]:
    """Returns the new value for each series; `None` where the expression does not match."""
    values = [labels.get(source, "") for labels in vector.labels]
    distinct = sorted(set(values))
    texts = dict(zip(distinct, _expand(distinct, replacement, regex, check_deadline), strict=True))
    return [texts[value] for value in values]


def _expand(values: list[str], replacement: str, regex: str, check_deadline: DeadlineCheck) -> list[str | None]:
    pattern, names = name_groups(regex, "spm")
    names["0"] = _WHOLE_MATCH
    if cuts_characters(regex):
        raise QueryFailed(f"invalid regular expression in label_replace(): {regex}")
    if refusal := too_many_classes(regex):
        raise QueryFailed(f"regular expression in label_replace() is too large: {refusal}")
    expanded: list[str | None] = []
    # One extra value, so that the expression is checked even if there are no series.
    for texts in portions(strings([*values, ""])):
        check_deadline()
        try:
            matches = pc.extract_regex(texts, pattern=rf"\A(?P<{_WHOLE_MATCH}>(?s:{pattern}))\z")
        except pa.ArrowInvalid as error:
            raise QueryFailed(f"invalid regular expression in label_replace(): {regex}") from error
        expanded += [
            None if captures is None else _fill_template(replacement, captures, names)
            for captures in matches.to_pylist()
        ]
    return expanded[:-1]


def _join_bounded(separator: str, parts: list[str]) -> str:
    """Joins the parts; raises `QueryTooLarge` beyond the limit: a label built from itself doubles with every call."""
    if sum(map(len, parts)) + len(separator) * (len(parts) - 1) > LABEL_VALUE_BYTES_MAX:
        raise QueryTooLarge(
            f"a computed label value has more than {LABEL_VALUE_BYTES_MAX} characters, the limit: "
            "compute it from fewer or shorter parts"
        )
    return separator.join(parts)


def _fill_template(replacement: str, captures: dict[str, str], names: dict[str, str]) -> str:
    """Replaces `$1`, `${1}` and `${name}` in the template; a reference to no group is empty, as in Go."""
    parts, at = [], 0
    for match in _REFERENCE.finditer(replacement):
        group = captures.get(names.get(match[2] or match[3], ""), "") or ""
        parts += [replacement[at : match.start()], "$" if match[1] else group]
        at = match.end()
    return _join_bounded("", [*parts, replacement[at:]])
