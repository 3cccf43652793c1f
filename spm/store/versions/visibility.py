"""The versions that a read may see: those accepted by a time, or known at a K, without what retractions hide.

Reader and run use the same code. A ``Visibility`` is built once per question and applied piece by piece; one that hides
nothing costs nothing. The caller says which series a retraction's matchers select: the reader has its index, a run
reads the dictionary.
"""

from collections.abc import Callable

import numpy as np

from spm.arrays import BOOL, U64
from spm.fast_dataclass import dataclass
from spm.store.encoding import kernels
from spm.store.versions.knowledge import Knowledge
from spm.store.versions.merge import Piece
from spm.store.versions.retractions import Retraction

Pairs = tuple[U64, U64]  # series ids and metric ids: an id names a series within its metric
SeriesOf = Callable[[Retraction], Pairs]  # called only for a retraction that has matchers


def _no_series(retraction: Retraction) -> Pairs:
    raise AssertionError(f"BUG: nobody says which series retraction {retraction.number} is about")


@dataclass(frozen=True, slots=True)
class Visibility:
    """What hides versions: retractions in force, a time of acceptance, and a K that does not know their stamps.

    ``asof_ms`` is for people ("accepted by then"), ``knowledge`` (K) for verdicts, whose replay must give the same
    result.
    """

    retractions: tuple[Retraction, ...] = ()
    series_of: SeriesOf = _no_series
    asof_ms: int | None = None
    knowledge: Knowledge | None = None

    @property
    def is_past(self) -> bool:
        """Whether it may leave out what was accepted or retracted by now."""
        return self.asof_ms is not None or self.knowledge is not None

    def shows_all_to(self, stamp_ms: int) -> bool:
        """Whether no version with a stamp up to this time is hidden for having come too late."""
        if self.asof_ms is not None and stamp_ms > self.asof_ms:
            return False
        return self.knowledge is None or self.knowledge.knows_all_to(stamp_ms)

    def visible_rows(self, piece: Piece) -> BOOL | None:
        """bool[N]: the visible rows of a piece; ``None``: all of them."""
        masks = [self._later(piece), self._unknown(piece), *(self._retracted(r, piece) for r in self.retractions)]
        hidden = [rows for rows in masks if rows is not None]
        return ~np.logical_or.reduce(hidden) if hidden else None

    def _later(self, piece: Piece) -> BOOL | None:
        if self.asof_ms is None:
            return None
        later = piece.messages.ms > self.asof_ms
        return later[piece.message] if later.any() else None

    def _unknown(self, piece: Piece) -> BOOL | None:
        if self.knowledge is None:
            return None
        unknown = ~self.knowledge.vector.knows(piece.messages)
        return unknown[piece.message] if unknown.any() else None

    def _retracted(self, retraction: Retraction, piece: Piece) -> BOOL | None:
        """bool[N]: the rows that one retraction hides; ``None``: none of them."""
        messages = piece.messages
        in_range = (messages.ms >= retraction.write_from_ms) & (messages.ms <= retraction.write_to_ms)
        if retraction.source:
            numbers = [i for i, name in enumerate(messages.sources) if name == retraction.source]
            in_range &= np.isin(messages.source, numbers)
        if not in_range.any():
            return None
        rows = in_range[piece.message] & (piece.ts > retraction.data_from_ms) & (piece.ts <= retraction.data_to_ms)
        if retraction.matchers and rows.any():
            matches = contains_pairs(piece.series, piece.metrics, *self.series_of(retraction))
            rows &= matches[kernels.spread(piece.counts, len(piece))]
        return rows if rows.any() else None


ALL_VISIBLE = Visibility()


def contains_pairs(series: U64, metrics: U64, wanted: U64, wanted_metrics: U64) -> BOOL:
    """bool[S]: the (series, metric) pairs that are among the wanted ones."""
    count = len(series)
    both_s, both_m = np.concatenate([series, wanted]), np.concatenate([metrics, wanted_metrics])
    order = np.lexsort((both_s, both_m))
    s, m, is_wanted = both_s[order], both_m[order], order >= count
    if not len(order):
        return np.zeros(0, np.bool_)
    heads = np.flatnonzero(np.concatenate([[True], (s[1:] != s[:-1]) | (m[1:] != m[:-1])]))
    hits = np.logical_or.reduceat(is_wanted, heads)
    result = np.empty(len(order), np.bool_)
    result[order] = np.repeat(hits, np.diff(np.append(heads, len(order))))
    return result[:count]
