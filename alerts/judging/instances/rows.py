"""What the steps say of a rule's instances, as rows of inputs. Pure.

``Inputs`` are what a condition makes of an answer: rules that differ only in their durations share them. ``Table``
chooses the rows that matter to one rule, and adds rows of absences for what the answer lacks.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from alerts.judging.answers import Answer
from alerts.judging.automaton import Input
from alerts.judging.conditions import Codes, Condition, classify
from alerts.judging.instances.keys import Aspect, InstanceKey
from alerts.judging.versions import RuleVersion
from spm.arrays import BOOL, F64


class Rows:
    """Instances of one aspect of a rule, a row each. ``may_begin``: where a row that is ok may leave it.

    A row is searched as bytes: it is short, and an array's search costs more than it finds.
    """

    __slots__ = ("_begins", "_changes", "codes", "edited", "keys", "values")

    def __init__(self, keys: list[InstanceKey], codes: Codes, may_begin: BOOL, values: F64, edited: BOOL) -> None:
        self.keys, self.values = keys, values
        self.edited = edited  # rows that end because the rule's version selects other series
        self.codes = [row.tobytes() for row in codes]
        self._begins = [row.tobytes() for row in may_begin]
        self._changes: list[list[int]] = [[] for _ in keys]
        where = np.nonzero(codes[:, 1:] != codes[:, :-1])
        for row, place in zip(where[0].tolist(), where[1].tolist(), strict=True):
            self._changes[row].append(place + 1)

    def next_begin(self, row: int, index: int) -> int | None:
        """Return the next place, from an index on, at which a row that is ok may leave it."""
        place = self._begins[row].find(1, index)
        return place if place >= 0 else None

    def next_change(self, row: int, index: int) -> int | None:
        """Return the next place after an index at which a row has another input."""
        changes = self._changes[row]
        at = bisect_right(changes, index)
        return changes[at] if at < len(changes) else None


@dataclass(frozen=True, slots=True)
class Hold:
    """What cannot be judged: steps that failed, and absences at steps for which data is still on its way.

    ``is_collective``: all values are absences then, because one that needs all sources is wrong without some of them,
    and so is the age of a heartbeat.
    """

    failed: tuple[int, ...]
    incomplete: BOOL | None
    is_collective: bool

    def overwrite(self, codes: Codes, is_absent: BOOL) -> None:
        """Mark in some inputs what cannot be judged."""
        if self.incomplete is not None:
            codes[(is_absent | self.is_collective) & self.incomplete] = Input.UNJUDGED
        if self.failed:
            codes[:, list(self.failed)] = Input.UNJUDGED


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a condition makes of an answer: values and inputs, a row per series, and which are violated somewhere."""

    answer: Answer
    values: F64
    present: BOOL
    codes: Codes
    is_violated: BOOL
    lead: int  # columns of the answer before the first step

    @property
    def nbytes(self) -> int:
        """What it takes, without the answer."""
        return self.values.nbytes + self.present.nbytes + self.codes.nbytes


def inputs_of(condition: Condition, answer: Answer, lead: int, hold: Hold) -> Inputs:
    """Compare the values of an answer, but for some columns at its beginning, with a condition."""
    present = answer.present[:, lead:]
    values = np.where(present, answer.values[:, lead:], np.nan)
    codes = classify(condition, values, present)
    hold.overwrite(codes, ~present)
    return Inputs(answer, values, present, codes, (codes == Input.VIOLATED).any(axis=1), lead)


@dataclass(frozen=True, slots=True)
class Table:
    """The inputs of one version of a rule, of which it takes the rows that matter."""

    version: RuleVersion
    inputs: Inputs
    hold: Hold
    is_new_selection: bool

    def value_rows(self, rule: int, known: Sequence[InstanceKey]) -> Rows:
        """Return the rows of the aspect value: the series that are violated at some step, and those with a state."""
        answer, inputs = self.inputs.answer, self.inputs
        wanted = {key.fingerprint for key in known if key.aspect == Aspect.VALUE}
        chosen = np.flatnonzero(inputs.is_violated | self._rows_of(wanted) if wanted else inputs.is_violated)
        names = [answer.name(row) for row in chosen.tolist()]
        absent = sorted(wanted.difference(names))
        codes, values, present = inputs.codes[chosen], inputs.values[chosen], inputs.present
        if absent:
            absences = np.full((len(absent), codes.shape[1]), self.version.condition.absent, np.uint8)
            self.hold.overwrite(absences, np.ones(absences.shape, np.bool_))
            codes = np.concatenate([codes, absences])
            values = np.concatenate([values, np.full(absences.shape, np.nan)])
        is_edited = np.zeros(len(codes), np.bool_)
        if self._is_edit_judged:
            is_edited[: len(chosen)] = ~present[chosen, 0]
            is_edited[len(chosen) :] = True
            codes[is_edited, 0] = Input.GONE
        keys = [InstanceKey(rule, name, Aspect.VALUE) for name in [*names, *absent]]
        return Rows(keys, codes, codes == Input.VIOLATED, values, is_edited)

    def missing_rows(self, rule: int, known: Sequence[InstanceKey]) -> Rows:
        """Return the rows of the aspect missing: its absence begins where a series was there one step before."""
        answer = self.inputs.answer
        has_value = answer.present & ~np.isnan(answer.values)
        is_there = has_value[:, self.inputs.lead :]
        codes = np.where(is_there, Input.WELL, Input.VIOLATED).astype(np.uint8)
        self.hold.overwrite(codes, ~is_there)
        may_begin = (codes == Input.VIOLATED) & has_value[:, :-1]
        wanted = {key.fingerprint for key in known if key.aspect == Aspect.MISSING}
        chosen = np.flatnonzero(may_begin.any(axis=1) | self._rows_of(wanted))
        names = [answer.name(row) for row in chosen.tolist()]
        absent = sorted(wanted.difference(names))
        absences = np.full((len(absent), codes.shape[1]), Input.VIOLATED, np.uint8)
        self.hold.overwrite(absences, np.ones(absences.shape, np.bool_))
        codes = np.concatenate([codes[chosen], absences])
        may_begin = np.concatenate([may_begin[chosen], np.zeros(absences.shape, np.bool_)])
        is_edited = np.zeros(len(codes), np.bool_)
        if self._is_edit_judged:
            is_edited = codes[:, 0] == Input.VIOLATED
            codes[is_edited, 0] = Input.GONE
            may_begin[:, 0] = False
        keys = [InstanceKey(rule, name, Aspect.MISSING) for name in [*names, *absent]]
        return Rows(keys, codes, may_begin, np.full(codes.shape, np.nan), is_edited)

    @property
    def _is_edit_judged(self) -> bool:
        return self.is_new_selection and 0 not in self.hold.failed

    def _rows_of(self, names: set[str]) -> BOOL:
        """bool[S]: the rows of the answer with these names."""
        answer = self.inputs.answer
        count = len(answer.labels)
        if not names:
            return np.zeros(count, np.bool_)
        return np.fromiter((answer.name(row) in names for row in range(count)), np.bool_, count)


def error_row(rule: int, errors: Mapping[int, str], size: int) -> Rows:
    """Return the row of a rule's errors: violated at each step that has one."""
    codes = np.full((1, size), Input.WELL, np.uint8)
    codes[0, list(errors)] = Input.VIOLATED
    key = InstanceKey(rule, "", Aspect.ERROR)
    return Rows([key], codes, codes == Input.VIOLATED, np.full((1, size), np.nan), np.zeros(1, np.bool_))
