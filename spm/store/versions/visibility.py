"""Which versions of a unit a read may see: those accepted by a time, or known at an E, without what retractions hide.

The same for the reader and for the run that makes hours. A ``Visibility`` is made once per question and asked piece by piece;
a lens that hides nothing costs nothing. Series that a retraction's matchers select come from the caller: the reader has
its index, a run asks the dictionary.
"""

from collections.abc import Callable

import numpy as np

from spm.arrays import BOOL, U64
from spm.fast_dataclass import dataclass
from spm.store.encoding import kernels
from spm.store.ledger.watermarks import WatermarkVector
from spm.store.versions.merge import Piece
from spm.store.versions.retractions import Retraction

Pairs = tuple[U64, U64]  # series ids and metric ids: an id names a series within its metric
SeriesOf = Callable[[Retraction], Pairs]  # asked only for a retraction that has matchers


def _no_series(retraction: Retraction) -> Pairs:
    raise AssertionError(f"BUG: nobody says which series retraction {retraction.number} is about")


@dataclass(frozen=True, slots=True)
class Visibility:
    """What hides: retractions in force, a time of acceptance above which nothing is known yet, and what E has not seen.

    ``asof_ms`` is for people ("accepted by then"); ``known`` for verdicts, which must come out the same when replayed.
    """

    retractions: tuple[Retraction, ...] = ()
    series_of: SeriesOf = _no_series
    asof_ms: int | None = None
    known: WatermarkVector | None = None

    def kept(self, piece: Piece) -> BOOL | None:
        """bool[N]: the rows of a piece that may be seen; ``None``: all of them."""
        hidden = [self._later(piece), self._unknown(piece), *(self._retracted(r, piece) for r in self.retractions)]
        found = [rows for rows in hidden if rows is not None]
        return ~np.logical_or.reduce(found) if found else None

    def _later(self, piece: Piece) -> BOOL | None:
        if self.asof_ms is None:
            return None
        later = piece.messages.ms > self.asof_ms
        return later[piece.message] if later.any() else None

    def _unknown(self, piece: Piece) -> BOOL | None:
        if self.known is None:
            return None
        unknown = ~self.known.known(piece.messages)
        return unknown[piece.message] if unknown.any() else None

    def _retracted(self, retraction: Retraction, piece: Piece) -> BOOL | None:
        """bool[N]: the rows that one retraction hides; ``None``: none of them."""
        messages = piece.messages
        named = (messages.ms >= retraction.write_from_ms) & (messages.ms <= retraction.write_to_ms)
        if retraction.source:
            numbers = [i for i, name in enumerate(messages.sources) if name == retraction.source]
            named &= np.isin(messages.source, numbers)
        if not named.any():
            return None
        rows = named[piece.message] & (piece.ts > retraction.data_from_ms) & (piece.ts <= retraction.data_to_ms)
        if retraction.matchers and rows.any():
            chosen = among(piece.series, piece.metrics, *self.series_of(retraction))
            rows &= chosen[kernels.spread(piece.counts, len(piece))]
        return rows if rows.any() else None


PLAIN = Visibility()


def among(series: U64, metrics: U64, wanted: U64, wanted_metrics: U64) -> BOOL:
    """bool[S]: which (series, metric) pairs are among the wanted ones."""
    count = len(series)
    both_s, both_m = np.concatenate([series, wanted]), np.concatenate([metrics, wanted_metrics])
    order = np.lexsort((both_s, both_m))
    s, m, asked = both_s[order], both_m[order], order >= count
    if not len(order):
        return np.zeros(0, np.bool_)
    heads = np.flatnonzero(np.concatenate([[True], (s[1:] != s[:-1]) | (m[1:] != m[:-1])]))
    hit = np.logical_or.reduceat(asked, heads)
    found = np.empty(len(order), np.bool_)
    found[order] = np.repeat(hit, np.diff(np.append(heads, len(order))))
    return found[:count]
