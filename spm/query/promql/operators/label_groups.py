"""Groups series by their labels.

A group is identified by the values of some labels, or of all but some. Labels are read column by column (one pass per
label name over all series), never sorted per series. Codes number the groups in the order of their first series.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from spm.arrays import I64
from spm.fast_dataclass import dataclass
from spm.query.request.batches import METRIC_NAME
from spm.query.series.label_table import Labels, LabelTable

_FEW = 64  # up to this number of series, sorting dicts is faster than numbering columns
METADATA = frozenset({METRIC_NAME, "__type__", "__unit__"})  # labels that say what the numbers of a series mean


@dataclass(frozen=True, slots=True)
class Groups:
    """`codes[i]` is the group of series i; `labels[g]` identifies group g."""

    codes: I64
    labels: Sequence[Labels]

    def members(self) -> tuple[I64, I64]:
        """Return the series sorted by group, and where each group begins among them (and the end of the last)."""
        order = np.argsort(self.codes, kind="stable")
        sizes = np.bincount(self.codes, minlength=len(self.labels))
        return order, np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))


def group_by(series: Sequence[Labels], names: Iterable[str]) -> Groups:
    """Group series by the values of these labels; a missing label equals an empty one."""
    return _group(series, sorted(set(names)))


def group_without(series: Sequence[Labels], names: Iterable[str]) -> Groups:
    """Group series by all labels except these and the metric's name."""
    return _group(series, sorted(_names(series) - set(names) - {METRIC_NAME}))


def group_equal(series: Sequence[Labels]) -> Groups:
    """Group series with equal labels."""
    return _group(series, sorted(_names(series)))


def label_order(series: Sequence[Labels]) -> I64:
    """Return the numbers of the series, sorted by labels."""
    if isinstance(series, LabelTable) and (len(series) > _FEW or len(series.columns) <= 1):
        return series.order()
    keys = [sorted(labels.items()) for labels in series]
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64)


def without_name(labels: Labels) -> Labels:
    """Return the labels without the metric's name and the type and unit that belong to it."""
    return {name: value for name, value in labels.items() if name not in METADATA}


def labels_text(labels: Labels) -> str:
    """Write labels as Prometheus does in its messages."""
    return "{" + ", ".join(f"{name}={_quote(value)}" for name, value in sorted(labels.items())) + "}"


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _names(series: Sequence[Labels]) -> set[str]:
    if isinstance(series, LabelTable):
        return {column.name for column in series.columns}
    return set().union(*series)


def _group(series: Sequence[Labels], names: list[str]) -> Groups:
    if isinstance(series, LabelTable):
        by_name = series.only(names)
        codes, first = by_name.grouped()
        return Groups(codes, by_name.take(first))
    if not names:
        return Groups(np.zeros(len(series), np.int64), [{}] if series else [])
    columns = [[labels.get(name, "") for labels in series] for name in names]
    numbers: dict[tuple[str, ...], int] = {}
    codes = np.fromiter(
        (numbers.setdefault(key, len(numbers)) for key in zip(*columns, strict=True)), np.int64, len(series)
    )
    named = [{name: value for name, value in zip(names, key, strict=True) if value} for key in numbers]
    return Groups(codes, named)
