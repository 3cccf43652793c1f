"""Label sets by column: which series fall into the same group.

A group is named by the values of some labels, or of all but some. Labels are read column by column (one pass per label
name over all series), never sorted per series. Codes number the groups in the order of their first series.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from spm.arrays import I64
from spm.fast_dataclass import dataclass
from spm.query.request.batches import METRIC_NAME
from spm.query.series.label_table import Labels, LabelTable

_FEW = 64  # series up to which dicts are sorted in less time than columns are numbered
METADATA = frozenset({METRIC_NAME, "__type__", "__unit__"})  # labels that say what the number of a series means


@dataclass(frozen=True, slots=True)
class Groups:
    """`codes[i]` is the group of series i; `labels[g]` names group g."""

    codes: I64
    labels: Sequence[Labels]

    def members(self) -> tuple[I64, I64]:
        """Series sorted by group, and where each group starts in them (with the end of the last)."""
        order = np.argsort(self.codes, kind="stable")
        sizes = np.bincount(self.codes, minlength=len(self.labels))
        return order, np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))


def group_by(series: Sequence[Labels], names: Iterable[str]) -> Groups:
    """Groups of series with equal values of the names; an absent label is like an empty one."""
    return _grouped(series, sorted(set(names)))


def group_without(series: Sequence[Labels], names: Iterable[str]) -> Groups:
    """Groups of series with equal labels, the names and the metric's own left out."""
    return _grouped(series, sorted(_names(series) - set(names) - {METRIC_NAME}))


def group_equal(series: Sequence[Labels]) -> Groups:
    """Groups of series with exactly the same labels."""
    return _grouped(series, sorted(_names(series)))


def ordered(series: Sequence[Labels]) -> I64:
    """The numbers of series, sorted by their labels."""
    if isinstance(series, LabelTable) and (len(series) > _FEW or len(series.columns) <= 1):
        return series.order()
    keys = [sorted(labels.items()) for labels in series]
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64)


def without_name(labels: Labels) -> Labels:
    """The labels without the metric's name, and without the type and unit that go with a name."""
    return {name: value for name, value in labels.items() if name not in METADATA}


def shown(labels: Labels) -> str:
    """Labels as Prometheus writes them in its messages."""
    return "{" + ", ".join(f"{name}={_quoted(value)}" for name, value in sorted(labels.items())) + "}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _names(series: Sequence[Labels]) -> set[str]:
    if isinstance(series, LabelTable):
        return {column.name for column in series.columns}
    return set().union(*series)


def _grouped(series: Sequence[Labels], names: list[str]) -> Groups:
    if isinstance(series, LabelTable):
        named_by = series.only(names)
        codes, first = named_by.grouped()
        return Groups(codes, named_by.take(first))
    if not names:
        return Groups(np.zeros(len(series), np.int64), [{}] if series else [])
    columns = [[labels.get(name, "") for labels in series] for name in names]
    numbers: dict[tuple[str, ...], int] = {}
    codes = np.fromiter(
        (numbers.setdefault(key, len(numbers)) for key in zip(*columns, strict=True)), np.int64, len(series)
    )
    named = [{name: value for name, value in zip(names, key, strict=True) if value} for key in numbers]
    return Groups(codes, named)
