"""The answer of an expression at several steps, and the series names that judging uses. Pure."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np

from alerts.judging.versions import Steps
from spm.arrays import BOOL, F64

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Answer:
    """The values of an expression, a row per series and a column per step.

    ``errors`` has the message of each step, by its index, at which the expression could not be evaluated.
    """

    labels: Sequence[Labels]
    values: F64
    present: BOOL
    errors: Mapping[int, str] = field(default_factory=dict)
    _names: dict[int, str] = field(default_factory=dict)
    _summary: list[tuple[float, float, bool]] = field(default_factory=list)

    def name(self, row: int) -> str:
        """Return the fingerprint of a row's labels; each is computed once, and only if it is needed."""
        if row not in self._names:
            self._names[row] = fingerprint(self.labels[row])
        return self._names[row]

    @property
    def extremes(self) -> tuple[float, float]:
        """The least and the greatest value there is, without NaN; infinities the wrong way round if there is none."""
        return self._summarised()[:2]

    @property
    def lacks_nothing(self) -> bool:
        """Whether each series has a value at each step."""
        return self._summarised()[2]

    def _summarised(self) -> tuple[float, float, bool]:
        if not self._summary:
            numbers = self.values[self.present & ~np.isnan(self.values)]
            least, greatest = (float(numbers.min()), float(numbers.max())) if numbers.size else (np.inf, -np.inf)
            self._summary.append((least, greatest, numbers.size == self.values.size))
        return self._summary[0]

    def labels_by_name(self) -> dict[str, Labels]:
        """Return the labels of the rows whose names were needed so far, by name."""
        return {name: self.labels[row] for row, name in self._names.items()}

    @classmethod
    def failed(cls, steps: Steps, error: str) -> "Answer":
        """Return an answer that has no series and one error at all steps."""
        size = len(steps)
        return cls([], np.empty((0, size)), np.empty((0, size), np.bool_), dict.fromkeys(range(size), error))


Read = Callable[[str, Steps], Answer]  # an expression and steps → its answer


def fingerprint(labels: Labels) -> str:
    """Return a short, permanent name for a label set."""
    text = json.dumps(sorted(labels.items()), ensure_ascii=False, separators=(",", ":"))
    return blake2b(text.encode(), digest_size=16).hexdigest()


def join(parts: Sequence[tuple[Steps, Answer]], steps: Steps) -> Answer:
    """Join answers of consecutive steps into one, whose series are those of all parts."""
    names: dict[str, Labels] = {}
    rows_of = []
    for _, answer in parts:
        rows_of.append([fingerprint(each) for each in answer.labels])
        names.update(zip(rows_of[-1], answer.labels, strict=True))
    row = {name: number for number, name in enumerate(names)}
    values, present = np.full((len(row), len(steps)), np.nan), np.zeros((len(row), len(steps)), np.bool_)
    errors: dict[int, str] = {}
    for (part, answer), rows in zip(parts, rows_of, strict=True):
        first = steps.index_from(part.first_ms)
        places = np.ix_([row[name] for name in rows], range(first, first + len(part)))
        values[places], present[places] = answer.values, answer.present
        errors |= {first + index: error for index, error in answer.errors.items()}
    return Answer(list(names.values()), values, present, errors)
