"""One label of an app's series: its distinct values, which series has which, and the series of each value.

A column of small numbers says which value each series has; 0 stands for "absent". Its inverse, made at the first use,
lists the series of each value in order. A regular expression is tried on distinct values only, and its result is
cached. Values and series are only added. Enter by ``LabelIndex``.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
from numba import njit

from spm.arrays import BOOL, I32, I64
from spm.bounded import LruCache
from spm.fast_dataclass import dataclass
from spm.limits import LABEL_MASK_BYTES_MAX, LABEL_MASKS_MAX
from spm.store.encoding import kernels
from spm.store.encoding.arrow import strings
from spm.store.matchers import Matcher, literals, mask, portions

_LAG = 8  # the inverse is made anew when an eighth of the series is newer
_LAG_LEAST = 10_000
_ROWS_OF_MANY = 4  # from a quarter of all series on, examining all of them is faster than joining lists
_FEW = 8_192  # up to so many series in all, examining all of them is faster whatever the share
_NAMED_MAX = 64  # values that a matcher may name to be answered with their numbers


@dataclass(frozen=True, slots=True)
class NamedValues:
    """The few values that a matcher names, by their numbers."""

    numbers: I64


Hits = BOOL | NamedValues  # of a label's values: whether each satisfies a matcher, or which few do


@dataclass(frozen=True, slots=True)
class _Inverse:
    """The series of value v among the first ``count``: rows[starts[v]:starts[v + 1]]."""

    rows: I64
    starts: I64
    sizes: I64
    count: int

    def rows_of(self, values: I64) -> I64:
        """The series of some values, ascending."""
        if len(values) == 1:
            value = int(values[0])
            return self.rows[self.starts[value] : self.starts[value + 1]]
        return np.sort(_rows_of(self.rows, self.starts, values))


@njit(cache=True, nogil=True)
def _rows_of(rows: I64, starts: I64, values: I64) -> I64:
    total = 0
    for value in values:
        total += starts[value + 1] - starts[value]
    out, at = np.empty(total, np.int64), 0
    for value in values:
        for place in range(starts[value], starts[value + 1]):
            out[at] = rows[place]
            at += 1
    return out


@njit(cache=True, nogil=True)
def _size_of(sizes: I64, values: I64) -> int:
    size = 0
    for value in values:
        if value < len(sizes):
            size += sizes[value]
    return size


class LabelIndex:
    """The values and series of one label. Not thread-safe for writers; results of earlier reads stay valid."""

    def __init__(self) -> None:
        self.values: list[str] = [""]
        self._number: dict[bytes, int] = {b"": 0}
        self._codes: I32 = np.zeros(0, np.int32)
        self._inverse: _Inverse | None = None
        self._texts: pa.Array | None = None
        self._masks: LruCache[tuple[str, str], BOOL] = LruCache(LABEL_MASK_BYTES_MAX, count_max=LABEL_MASKS_MAX)
        self._sorted: list[str] = []

    def add(self, rows: I64, number: I64, texts: list[bytes], count: int) -> None:
        """Set the values of new series: row i gets ``texts[number[i]]``; ``count`` series there are afterwards."""
        codes = np.fromiter(map(self._code, texts), np.int32, len(texts))
        if len(self._codes) < count:
            grown = np.zeros(max(count, 2 * len(self._codes)), np.int32)
            grown[: len(self._codes)] = self._codes
            self._codes = grown
        self._codes[rows] = codes[number]

    def _code(self, text: bytes) -> int:
        code = self._number.get(text)
        if code is None:
            code = self._number[text] = len(self.values)
            self.values.append(text.decode("utf-8", "replace"))
        return code

    def codes(self, count: int) -> I32:
        """The number of each series' value."""
        if len(self._codes) < count:
            grown = np.zeros(count, np.int32)
            grown[: len(self._codes)] = self._codes
            self._codes = grown
        return self._codes[:count]

    # --- matchers

    def hits(self, matcher: Matcher, check_deadline: Callable[[], None]) -> Hits:
        """The values that satisfy a matcher: a mask of all, or the numbers of the few that it names."""
        texts = literals(matcher) if matcher.op in ("=", "=~") else None
        if texts is not None and len(texts) <= _NAMED_MAX:
            return self._named(texts)
        key = matcher.op, matcher.value
        satisfies = self._masks.get(key)
        if satisfies is None:
            satisfies = np.zeros(0, np.bool_)
        if len(satisfies) < len(self.values):
            if texts is None:
                return self._match_further(matcher, satisfies, check_deadline)
            satisfies = self._mask(self._named(texts))
            self._keep_mask(key, satisfies)
        return satisfies

    def _match_further(self, matcher: Matcher, satisfies: BOOL, check_deadline: Callable[[], None]) -> BOOL:
        """Match the values behind those that ``satisfies`` knows.

        What is matched before the deadline is remembered, so that the next question goes on from there.
        """
        new = strings(self.values[len(satisfies) :]) if len(satisfies) else self._column()
        masks = [satisfies]
        try:
            for portion in portions(new):
                check_deadline()
                masks.append(mask(portion, matcher))
        finally:
            if len(masks) > 1:
                satisfies = np.concatenate(masks)
                self._keep_mask((matcher.op, matcher.value), satisfies)
        return satisfies

    def _keep_mask(self, key: tuple[str, str], satisfies: BOOL) -> None:
        # A mask larger than the whole limit is cached too, alone.
        self._masks.put(key, satisfies, min(len(satisfies), LABEL_MASK_BYTES_MAX))

    def _mask(self, hits: Hits) -> BOOL:
        if not isinstance(hits, NamedValues):
            return hits
        satisfies = np.zeros(len(self.values), np.bool_)
        satisfies[hits.numbers] = True
        return satisfies

    def _named(self, texts: Sequence[str]) -> NamedValues:
        return NamedValues(np.array([code for code in set(map(self._code_of, texts)) if code >= 0], np.int64))

    def _code_of(self, text: str) -> int:
        return self._number.get(text.encode("utf-8", "surrogatepass"), -1)

    def _column(self) -> pa.Array:
        if self._texts is None or len(self._texts) != len(self.values):
            self._texts = strings(self.values)
        return self._texts

    def size(self, hits: Hits, count: int) -> int:
        """About how many series have one of these values."""
        inverse = self._inverted(count)
        sizes, newer = inverse.sizes, count - inverse.count
        if isinstance(hits, NamedValues):
            return newer + int(_size_of(sizes, hits.numbers))
        return newer + int(sizes[hits[: len(sizes)]].sum())

    def rows(self, hits: Hits, count: int) -> I64:
        """The series that have one of these values, ascending."""
        inverse = self._inverted(count)
        newer = np.arange(inverse.count, count)
        if len(newer):
            newer = newer[self.among(newer, hits)]
        is_named, inverted = isinstance(hits, NamedValues), len(inverse.sizes)  # how many values the inverse has
        is_single = isinstance(hits, NamedValues) and len(hits.numbers) <= 1
        is_few = is_single or self.size(hits, count) * _ROWS_OF_MANY <= count
        if not is_few or (not is_named and count <= _FEW):
            return np.flatnonzero(self._mask(hits)[self.codes(count)])
        if isinstance(hits, NamedValues):
            numbers = hits.numbers[hits.numbers < inverted]
        else:
            numbers = np.flatnonzero(hits[:inverted])
        rows = inverse.rows_of(numbers)
        return np.concatenate((rows, newer)) if len(newer) else rows

    def among(self, rows: I64, hits: Hits) -> BOOL:
        """Which of these series have one of these values."""
        codes = self.codes(int(rows[-1]) + 1 if len(rows) else 0)[rows]
        if isinstance(hits, NamedValues) and len(hits.numbers) == 1:
            equal: BOOL = codes == hits.numbers[0]
            return equal
        return self._mask(hits)[codes]

    def _inverted(self, count: int) -> _Inverse:
        if self._inverse is None or (count - self._inverse.count) > max(_LAG_LEAST, self._inverse.count // _LAG):
            sizes, rows = kernels.group_by_series(self.codes(count), len(self.values))
            starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)))
            self._inverse = _Inverse(rows, starts, np.diff(starts), count)
        return self._inverse

    # --- values

    def used_values(self, rows: I64 | None, count: int) -> list[str]:
        """The sorted values that any of these series has; ``None``: any series at all."""
        codes = self.codes(count)
        uses = np.bincount(codes if rows is None else codes[rows], minlength=len(self.values))
        numbers = np.flatnonzero(uses[1:]) + 1
        if len(numbers) + 1 < len(self.values):
            return sorted(map(self.values.__getitem__, numbers.tolist()))
        if len(self._sorted) != len(self.values) - 1:
            self._sorted = sorted([*self._sorted, *self.values[len(self._sorted) + 1 :]])
        return list(self._sorted)
