"""`label_replace` and `label_join`: labels made of others.

A regular expression is a user's, so it runs in RE2 (through Arrow), anchored at both ends, once over the distinct
values of the source label. A label that becomes empty is gone. Writing the metric's name gives a series the name that
it keeps.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from spm.errors import QueryFailed, QueryTooLarge
from spm.limits import LABEL_VALUE_BYTES_MAX
from spm.query.promql.operators.vector import Vector, united
from spm.query.promql.syntax.patterns import all_named, cuts_characters
from spm.query.request.batches import METRIC_NAME
from spm.store.encoding.arrow import strings
from spm.store.matchers import too_many_classes

_WHOLE = "spm0"
_REFERENCE = re.compile(r"\$(?:(\$)|\{(\w+)\}|(\w+))", re.ASCII)


def relabelled(function: str, vector: Vector, texts: tuple[str, ...]) -> Vector:
    """The vector with one label made of others; series that come to look the same are joined if they never meet."""
    target = texts[0]
    if not target:
        raise QueryFailed(f"invalid destination label name in {function}(): {target}")
    made = _replaced(vector, *texts[1:]) if function == "label_replace" else _joined(vector, texts[1], texts[2:])
    labels, nameless = [], vector.nameless.copy()
    for row, (old, text) in enumerate(zip(vector.labels, made, strict=True)):
        labels.append(old if text is None else _with(old, target, text))
        nameless[row] &= text is None or target != METRIC_NAME
    return united([Vector(labels, vector.values, vector.present, nameless)])


def _with(labels: dict[str, str], name: str, text: str) -> dict[str, str]:
    others = {known: value for known, value in labels.items() if known != name}
    return others | {name: text} if text else others


def _joined(vector: Vector, separator: str, sources: tuple[str, ...]) -> list[str | None]:
    if not all(sources):
        raise QueryFailed("invalid source label name in label_join(): ")
    made: list[str | None] = []
    for labels in vector.labels:
        parts = [labels.get(name, "") for name in sources]
        made.append(_bounded(separator, parts))
    return made


def _replaced(vector: Vector, replacement: str, source: str, regex: str) -> list[str | None]:
    """The new text of each series; None where the expression does not match."""
    values = [labels.get(source, "") for labels in vector.labels]
    distinct = sorted(set(values))
    texts = dict(zip(distinct, _expanded(distinct, replacement, regex), strict=True))
    return [texts[value] for value in values]


def _expanded(values: list[str], replacement: str, regex: str) -> list[str | None]:
    pattern, names = all_named(regex, "spm")
    names["0"] = _WHOLE
    if cuts_characters(regex):
        raise QueryFailed(f"invalid regular expression in label_replace(): {regex}")
    if refusal := too_many_classes(regex):
        raise QueryFailed(f"regular expression in label_replace() is too large: {refusal}")
    try:
        # A value too many, so that an expression is judged even where there is no series.
        found = pc.extract_regex(strings([*values, ""]), pattern=rf"\A(?P<{_WHOLE}>(?s:{pattern}))\z")
    except pa.ArrowInvalid as error:
        raise QueryFailed(f"invalid regular expression in label_replace(): {regex}") from error
    return [None if captures is None else _filled(replacement, captures, names) for captures in found.to_pylist()[:-1]]


def _bounded(separator: str, parts: list[str]) -> str:
    """The parts joined, unless that is longer than a label may be: a label made of itself doubles again and again."""
    if sum(map(len, parts)) + len(separator) * (len(parts) - 1) > LABEL_VALUE_BYTES_MAX:
        raise QueryTooLarge(
            f"a label is made longer than {LABEL_VALUE_BYTES_MAX} characters, which is the most it may have: "
            "make it of fewer or shorter parts"
        )
    return separator.join(parts)


def _filled(replacement: str, captures: dict[str, str], names: dict[str, str]) -> str:
    """The template with `$1`, `${1}` and `${name}` put in; what is not a group is empty, as in Go."""

    parts, at = [], 0
    for match in _REFERENCE.finditer(replacement):
        group = captures.get(names.get(match[2] or match[3], ""), "") or ""
        parts += [replacement[at : match.start()], "$" if match[1] else group]
        at = match.end()
    return _bounded("", [*parts, replacement[at:]])
