"""`info`: adds labels of info series, such as `target_info`, with equal `instance` and `job`.

At each step the newest info series of a name counts; two equally new ones are an error at a step that has any element.
A label that a series has is not replaced. A series without an info series keeps its labels, unless the selection
requires a label that is not empty: then it is dropped. Info series themselves remain as they are. Enter by `join_info`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spm.arrays import BOOL, I64
from spm.errors import QueryFailed
from spm.query.promql.operators.vector import Vector, merge_rows
from spm.query.request.batches import METRIC_NAME, Matcher
from spm.query.series.label_table import Labels
from spm.store.matchers import mask, matches_empty

IDENTIFYING = ("instance", "job")
_DEFAULT = Matcher(METRIC_NAME, "=", "target_info")
_ANY_INFO = Matcher(METRIC_NAME, "=~", ".+_info")


@dataclass(frozen=True, slots=True)
class InfoSelection:
    """The info series to join: matchers of their name, and matchers of the labels to add (none: all labels)."""

    names: tuple[Matcher, ...]
    data: tuple[Matcher, ...]

    @classmethod
    def of(cls, matchers: Sequence[Matcher]) -> InfoSelection:
        """Read the second argument of `info`; without a name it is `target_info`, with negative ones any `…_info`."""
        names = tuple(matcher for matcher in matchers if matcher.name == METRIC_NAME)
        if not names:
            names = (_DEFAULT,)
        elif not any(matcher.op in ("=", "=~") for matcher in names):
            names = (_ANY_INFO, *names)
        return cls(names, tuple(matcher for matcher in matchers if matcher.name != METRIC_NAME))

    def is_info(self, labels: Labels) -> bool:
        """Whether a series is itself one of these info series."""
        name = labels.get(METRIC_NAME, "")
        return all(bool(mask([name], matcher)[0]) for matcher in self.names)


def join_info(base: Vector, info: Vector, selection: InfoSelection) -> Vector:
    """Adds the labels of `info`, whose values are the times of its samples, to the series of `base`."""
    needed_steps: BOOL = np.any(base.present, axis=0)
    newest = _newest(info, needed_steps)
    names = {matcher.name for matcher in selection.data}
    keeps_bare = all(map(matches_empty, selection.data))
    parts: list[Vector] = []
    for row, labels in enumerate(base.labels):
        one = base.take(np.array([row]))
        if selection.is_info(labels):
            parts.append(one)
            continue
        identity = _identity(labels)
        choices = [choice for (_, other), choice in newest.items() if identity and other == identity]
        parts += _rows_by_choice(one, choices, info.labels, names, keeps_bare=keeps_bare)
    return merge_rows(parts) if parts else base.take(np.empty(0, np.int64))


def candidates(base: Sequence[Labels], info: Vector, selection: InfoSelection) -> Vector:
    """Returns the info series that share their identity with a series of `base` that is not an info series itself."""
    identities = {_identity(labels) for labels in base if not selection.is_info(labels)} - {()}
    rows = [row for row, labels in enumerate(info.labels) if _identity(labels) in identities]
    return info.take(np.array(rows, np.int64))


def _identity(labels: Labels) -> tuple[tuple[str, str], ...]:
    return tuple((name, labels[name]) for name in IDENTIFYING if labels.get(name))


def _newest(info: Vector, needed_steps: BOOL) -> dict[tuple[str, tuple[tuple[str, str], ...]], I64]:
    """Returns per metric and identity the row of the newest info series at each step, -1 where there is none.

    Raises `QueryFailed` if two are equally new at a step that has an element.
    """
    rows: dict[tuple[str, tuple[tuple[str, str], ...]], list[int]] = {}
    for row, labels in enumerate(info.labels):
        rows.setdefault((labels.get(METRIC_NAME, ""), _identity(labels)), []).append(row)
    newest = {}
    for key, own in rows.items():
        stamps = np.where(info.present[own], info.values[own], -np.inf)
        best = stamps.max(axis=0)
        is_ambiguous = ((stamps == best) & np.isfinite(stamps)).sum(axis=0) > 1
        if (is_ambiguous & needed_steps).any():
            raise QueryFailed(f"found duplicate series for info metric: {key[0]}")
        newest[key] = np.where(np.isfinite(best), np.array(own)[stamps.argmax(axis=0)], -1)
    return newest


def _rows_by_choice(
    one: Vector, choices: list[I64], infos: Sequence[Labels], names: set[str], *, keeps_bare: bool
) -> list[Vector]:
    """Splits one series into rows: one for each set of info series that is joined to it at some step."""
    table = np.array(choices, np.int64).reshape(len(choices), one.values.shape[1])
    sets, place = np.unique(table, axis=1, return_inverse=True)
    parts = []
    for number, rows in enumerate(sets.T.tolist()):
        present = one.present & (place.reshape(-1) == number)
        matched = [infos[row] for row in rows if row >= 0]
        if present.any() and (matched or keeps_bare):
            labels = one.labels[0] | _labels_to_add(one.labels[0], matched, names)
            parts.append(Vector([labels], one.values, present, one.nameless))
    return parts


def _labels_to_add(own: Labels, infos: Sequence[Labels], names: set[str]) -> Labels:
    added: Labels = {}
    for labels in infos:
        for name, value in labels.items():
            if name == METRIC_NAME or (names and name not in names):
                continue
            if added.get(name, value) != value:
                raise QueryFailed(f"conflicting label: {name}")
            if name not in own:
                added[name] = value
    return added
