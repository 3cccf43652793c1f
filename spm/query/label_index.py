"""One label of an app's series: its distinct values, which series has which, and the series of each value.

A column of small numbers says which value a series has, 0 standing for "absent"; the inverse of it, made when it is
first asked for, lists the series of each value in order. A regular expression looks at distinct values only, and what
it found is remembered. All of it only grows. Enter by ``LabelIndex``.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spm.limits import LABEL_MASK_BYTES_MAX, LABEL_MASKS_MAX
from spm.query.literals import literals
from spm.store import kernels
from spm.store.columns import Bool, strings
from spm.store.matchers import Matcher, mask
from spm.wire import I32, I64

_LAG = 8  # the inverse is made anew when an eighth of the series is younger
_LAG_LEAST = 10_000
_ROWS_OF_MANY = 4  # from a quarter of all series on, looking at all of them is quicker than joining lists
_FEW = 8_192  # series up to which the same holds of any share


@dataclass(frozen=True, slots=True)
class _Inverse:
    """The series of value v among the first so many: rows[starts[v]:starts[v + 1]]."""

    rows: I64
    starts: I64
    sizes: I64
    count: int


class LabelIndex:
    """See the module. Not thread-safe for writers; what was read before stays right."""

    def __init__(self) -> None:
        self.values: list[str] = [""]
        self._number: dict[bytes, int] = {b"": 0}
        self._codes: I32 = np.zeros(0, np.int32)
        self._inverse: _Inverse | None = None
        self._texts: pa.Array | None = None
        self._masks: OrderedDict[tuple[str, str], Bool] = OrderedDict()
        self._mask_bytes = 0
        self._sorted: list[str] = []

    def add(self, rows: I64, number: I64, texts: list[bytes], count: int) -> None:
        """These series have these of the texts; ``count``: how many series there are then."""
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

    def hits(self, matcher: Matcher, tick: Callable[[], None]) -> Bool | int:
        """Which of the values satisfy a matcher; of one that names a single value its number, -1 for none."""
        named = literals(matcher) if matcher.op in ("=", "=~") else None
        if named is not None and len(named) == 1:
            return self._coded(named[0])
        key = matcher.op, matcher.value
        known = self._masks.get(key, np.zeros(0, np.bool_))
        if len(known) < len(self.values):
            before = len(known)
            if named is None:
                texts = self._column() if not len(known) else strings(self.values[len(known) :])
                known = np.concatenate((known, mask(texts, matcher, tick=tick)))
            else:
                known = np.zeros(len(self.values), np.bool_)
                known[[code for code in map(self._coded, named) if code >= 0]] = True
            self._masks[key] = known
            self._mask_bytes += len(known) - before
        self._masks.move_to_end(key)
        while len(self._masks) > 1 and (len(self._masks) > LABEL_MASKS_MAX or self._mask_bytes > LABEL_MASK_BYTES_MAX):
            self._mask_bytes -= len(self._masks.popitem(last=False)[1])
        return known

    def _coded(self, text: str) -> int:
        return self._number.get(text.encode("utf-8", "surrogatepass"), -1)

    def _column(self) -> pa.Array:
        if self._texts is None or len(self._texts) != len(self.values):
            self._texts = strings(self.values)
        return self._texts

    def size(self, hits: Bool | int, count: int) -> int:
        """About how many series satisfy it."""
        inverse = self._inverted(count)
        late = count - inverse.count
        if isinstance(hits, int):
            if hits < 0:
                return 0
            return late + (
                int(inverse.starts[hits + 1] - inverse.starts[hits]) if hits + 1 < len(inverse.starts) else 0
            )
        sizes = inverse.sizes
        return late + int(sizes[hits[: len(sizes)]].sum())

    def rows(self, hits: Bool | int, count: int) -> I64:
        """The series that satisfy it, ascending."""
        if isinstance(hits, int) and hits < 0:
            return np.empty(0, np.int64)
        inverse = self._inverted(count)
        late = np.arange(inverse.count, count)
        if len(late):
            late = late[self.among(late, hits)]
        if isinstance(hits, int):
            found = (
                inverse.rows[inverse.starts[hits] : inverse.starts[hits + 1]]
                if hits + 1 < len(inverse.starts)
                else late[:0]
            )
            return np.concatenate((found, late)) if len(late) else found
        if count <= _FEW or self.size(hits, count) * _ROWS_OF_MANY > count:
            return np.flatnonzero(hits[self.codes(count)])
        wanted = np.flatnonzero(hits[: len(inverse.sizes)])
        lengths = inverse.sizes[wanted].astype(np.int32)
        taken = kernels.take_segments(inverse.starts[wanted], lengths, int(lengths.sum()))
        return np.concatenate((np.sort(inverse.rows[taken]), late))

    def among(self, rows: I64, hits: Bool | int) -> Bool:
        """Which of these series satisfy it."""
        codes = self.codes(int(rows[-1]) + 1 if len(rows) else 0)[rows]
        found: Bool = codes == hits if isinstance(hits, int) else hits[codes]
        return found

    def _inverted(self, count: int) -> _Inverse:
        if self._inverse is None or (count - self._inverse.count) > max(_LAG_LEAST, self._inverse.count // _LAG):
            sizes, rows = kernels.group_by_series(self.codes(count), len(self.values))
            starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)))
            self._inverse = _Inverse(rows, starts, np.diff(starts), count)
        return self._inverse

    # --- values

    def used(self, rows: I64 | None, count: int) -> list[str]:
        """The sorted values that any of these series has; ``None``: any at all."""
        codes = self.codes(count)
        held = np.bincount(codes if rows is None else codes[rows], minlength=len(self.values))
        numbers = np.flatnonzero(held[1:]) + 1
        if len(numbers) + 1 < len(self.values):
            return sorted(map(self.values.__getitem__, numbers.tolist()))
        if len(self._sorted) != len(self.values) - 1:
            self._sorted = sorted([*self._sorted, *self.values[len(self._sorted) + 1 :]])
        return list(self._sorted)
