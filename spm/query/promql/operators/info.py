"""`info`: labels taken over from info series, such as `target_info`, that name the same `instance` and `job`.

At each step the newest info series of a name counts; two that are equally new are an error where there is any element.
Labels a series has already stay as they are. A series for which there is no info keeps its labels, unless a label was
asked for that must not be empty: then it is left out. Info series themselves are passed on. Enter by `enriched`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spm.arrays import BOOL, I64
from spm.errors import QueryFailed
from spm.query.promql.operators.vector import Vector, united
from spm.query.request.batches import METRIC_NAME, Matcher
from spm.query.series.label_table import Labels
from spm.store.matchers import mask, matches_empty

IDENTIFYING = ("instance", "job")
_DEFAULT = Matcher(METRIC_NAME, "=", "target_info")
_ANY_INFO = Matcher(METRIC_NAME, "=~", ".+_info")


@dataclass(frozen=True, slots=True)
class Asked:
    """Which info series are asked for: by name, and by the labels that are to be taken over (none: all)."""

    names: tuple[Matcher, ...]
    data: tuple[Matcher, ...]

    @classmethod
    def of(cls, matchers: Sequence[Matcher]) -> Asked:
        """From the second argument; without a name it is `target_info`, without a positive one any `…_info`."""
        names = tuple(matcher for matcher in matchers if matcher.name == METRIC_NAME)
        if not names:
            names = (_DEFAULT,)
        elif not any(matcher.op in ("=", "=~") for matcher in names):
            names = (_ANY_INFO, *names)
        return cls(names, tuple(matcher for matcher in matchers if matcher.name != METRIC_NAME))

    def is_info(self, labels: Labels) -> bool:
        """Whether a series is itself one of those asked for."""
        name = labels.get(METRIC_NAME, "")
        return all(bool(mask([name], matcher)[0]) for matcher in self.names)


def enriched(base: Vector, info: Vector, asked: Asked) -> Vector:
    """The base with labels of `info`, whose values are the times of its samples."""
    met: BOOL = np.any(base.present, axis=0)
    newest = _newest(info, met)
    wanted = {matcher.name for matcher in asked.data}
    keeps_bare = all(map(matches_empty, asked.data))
    parts: list[Vector] = []
    for row, labels in enumerate(base.labels):
        one = base.take(np.array([row]))
        if asked.is_info(labels):
            parts.append(one)
            continue
        identity = _identity(labels)
        choices = [choice for (_, known), choice in newest.items() if identity and known == identity]
        parts += _by_choice(one, choices, info.labels, wanted, keeps_bare=keeps_bare)
    return united(parts) if parts else base.take(np.empty(0, np.int64))


def concerned(base: Sequence[Labels], info: Vector, asked: Asked) -> Vector:
    """The info series that any of the base may go with; nothing goes with those that are info series themselves."""
    known = {_identity(labels) for labels in base if not asked.is_info(labels)} - {()}
    rows = [row for row, labels in enumerate(info.labels) if _identity(labels) in known]
    return info.take(np.array(rows, np.int64))


def _identity(labels: Labels) -> tuple[tuple[str, str], ...]:
    return tuple((name, labels[name]) for name in IDENTIFYING if labels.get(name))


def _newest(info: Vector, met: BOOL) -> dict[tuple[str, tuple[tuple[str, str], ...]], I64]:
    """Per metric and identity the row of the newest info series at each step, -1 where there is none.

    Two that are equally new are refused where they are met by any element.
    """
    rows: dict[tuple[str, tuple[tuple[str, str], ...]], list[int]] = {}
    for row, labels in enumerate(info.labels):
        rows.setdefault((labels.get(METRIC_NAME, ""), _identity(labels)), []).append(row)
    found = {}
    for key, own in rows.items():
        stamps = np.where(info.present[own], info.values[own], -np.inf)
        best = stamps.max(axis=0)
        twice = ((stamps == best) & np.isfinite(stamps)).sum(axis=0) > 1
        if (twice & met).any():
            raise QueryFailed(f"found duplicate series for info metric: {key[0]}")
        found[key] = np.where(np.isfinite(best), np.array(own)[stamps.argmax(axis=0)], -1)
    return found


def _by_choice(
    one: Vector, choices: list[I64], infos: Sequence[Labels], wanted: set[str], *, keeps_bare: bool
) -> list[Vector]:
    """One series as several: a row for each set of info series that goes with it at some step."""
    table = np.array(choices, np.int64).reshape(len(choices), one.values.shape[1])
    sets, place = np.unique(table, axis=1, return_inverse=True)
    parts = []
    for number, chosen in enumerate(sets.T.tolist()):
        present = one.present & (place.reshape(-1) == number)
        matched = [infos[row] for row in chosen if row >= 0]
        if present.any() and (matched or keeps_bare):
            labels = one.labels[0] | _taken(one.labels[0], matched, wanted)
            parts.append(Vector([labels], one.values, present, one.nameless))
    return parts


def _taken(own: Labels, infos: Sequence[Labels], wanted: set[str]) -> Labels:
    found: Labels = {}
    for labels in infos:
        for name, value in labels.items():
            if name == METRIC_NAME or (wanted and name not in wanted):
                continue
            if found.get(name, value) != value:
                raise QueryFailed(f"conflicting label: {name}")
            if name not in own:
                found[name] = value
    return found
