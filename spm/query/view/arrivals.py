"""Finds the messages that became known between two moments: what judges of rules must take into account again.

Only messages with samples in the given time range count. Hour-shards whose stamps were all known before are not read.
Enter by ``read_arrivals``.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from spm.arrays import I64
from spm.fast_dataclass import dataclass
from spm.limits import HOUR_MS
from spm.query.view.view import View
from spm.store.encoding import kernels
from spm.store.versions.generations import PageRequest
from spm.store.versions.knowledge import Knowledge
from spm.store.versions.merge import Piece


@dataclass(frozen=True, slots=True)
class Arrivals:
    """M messages, a row per message and HourShard: stamp, source, and its oldest and newest sample.

    ``oldest_of``: the oldest sample of them all for each metric id.
    """

    accepted_ms: I64
    sources: Sequence[str]
    oldest_ms: I64
    newest_ms: I64
    oldest_of: Mapping[int, int]

    def __len__(self) -> int:
        return len(self.accepted_ms)


def read_arrivals(
    view: View, everything: PageRequest, before: Knowledge | None, start_ms: int, end_ms: int
) -> Arrivals:
    """Read the messages that the view's K knows and ``before`` does not (None: it knows none)."""
    builder = _ArrivalsBuilder(start_ms, end_ms)
    for hour, shards in view.stored_hours(start_ms // HOUR_MS, (end_ms - 1) // HOUR_MS):
        for shard in shards:
            entry = view.entry(shard, hour)
            is_known = before is not None and before.knows_all_to(entry.stamp_max_ms)
            is_in_tail = (shard, hour) in view.tail.by_shard_hour or (shard, hour) in view.tail.missing
            if is_known and not is_in_tail:
                continue
            pieces = view.tail.pieces(shard, hour) if is_known else view.versions(shard, hour, everything)[0]
            for piece in pieces:
                builder.add(piece, view.visibility.knowledge, before)
    return builder.build()


class _ArrivalsBuilder:
    """Collects new messages piece by piece."""

    def __init__(self, start_ms: int, end_ms: int) -> None:
        self._start_ms, self._end_ms = start_ms, end_ms
        self._accepted: list[I64] = []
        self._oldest: list[I64] = []
        self._newest: list[I64] = []
        self._sources: list[str] = []
        self._oldest_of: dict[int, int] = {}

    def add(self, piece: Piece, knowledge: Knowledge | None, before: Knowledge | None) -> None:
        """Add the messages of a piece that are new."""
        messages = piece.messages
        is_new = np.ones(len(messages), np.bool_) if knowledge is None else knowledge.vector.knows(messages)
        if before is not None:
            is_new &= ~before.vector.knows(messages)
        if not is_new.any():
            return
        rows = np.flatnonzero(is_new[piece.message] & (piece.ts > self._start_ms) & (piece.ts <= self._end_ms))
        if not len(rows):
            return
        ts, message = piece.ts[rows], piece.message[rows]
        numbers, places = np.unique(message, return_inverse=True)
        oldest, newest = np.full(len(numbers), self._end_ms), np.full(len(numbers), self._start_ms)
        np.minimum.at(oldest, places, ts)
        np.maximum.at(newest, places, ts)
        self._accepted.append(messages.ms[numbers])
        self._oldest.append(oldest)
        self._newest.append(newest)
        self._sources += [messages.sources[number] for number in messages.source[numbers].tolist()]
        metrics, of_row = np.unique(piece.metrics[kernels.spread(piece.counts, len(piece))[rows]], return_inverse=True)
        first = np.full(len(metrics), self._end_ms)
        np.minimum.at(first, of_row, ts)
        for metric, at_ms in zip(metrics.tolist(), first.tolist(), strict=True):
            self._oldest_of[metric] = min(at_ms, self._oldest_of.get(metric, at_ms))

    def build(self) -> Arrivals:
        """Return what was builder."""
        none = [np.empty(0, np.int64)]
        accepted, oldest, newest = (
            np.concatenate(none + part) for part in (self._accepted, self._oldest, self._newest)
        )
        return Arrivals(accepted, self._sources, oldest, newest, self._oldest_of)
