"""Answers of range queries that were asked before, so that a dashboard that refreshes has only new steps computed.

An entry has the steps of one expression on one grid whose samples were settled when it was made, and what they rested
on (``standing``); its reader takes those steps that still rest on the same. What is asked once is not kept: a first
question leaves its key, if it was worth keeping. The least recently used go when the byte bound is reached. Enter by
``Results``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from spm import limits
from spm.bounded import LruCache
from spm.fast_dataclass import dataclass
from spm.query.request.budget import CELL_BYTES, SERIES_BYTES
from spm.query.request.provenance import Basis
from spm.query.series.label_table import Labels
from spm.query.view.fingerprint import Standing

_ENTRY_BYTES, _HOUR_BYTES = 2_000, 500


@dataclass(frozen=True, slots=True)
class Key:
    """What an answer's steps are the same by, as long as their samples are."""

    app: int
    text: str
    step_ms: int
    phase_ms: int  # of every step, modulo the width of one
    lookback_ms: int


@dataclass(frozen=True, slots=True)
class Entry:
    """Steps of an answer."""

    first_ms: int
    labels: Sequence[Labels]
    values: npt.NDArray[np.float64]  # [S, T]
    present: npt.NDArray[np.bool_]
    infos: tuple[str, ...]  # remarks about the expression
    basis: Basis
    standing: Standing

    @property
    def steps(self) -> int:
        """How many."""
        return int(self.values.shape[1])

    @property
    def size(self) -> int:
        """About the bytes it takes."""
        hours = len(self.standing.marks) * _HOUR_BYTES
        return _ENTRY_BYTES + self.values.size * CELL_BYTES + len(self.labels) * SERIES_BYTES + hours


class Results:
    """A bounded map from keys to entries. Thread-safe."""

    def __init__(
        self, bytes_max: int = limits.RESULTS_BYTES_MAX, samples_min: int = limits.RESULTS_SAMPLES_MIN
    ) -> None:
        # An entry is a tuple of one, or an empty one where only the question is remembered.
        self._entries: LruCache[Key, tuple[Entry, ...]] = LruCache(bytes_max)
        self._entry_bytes_max, self.samples_min = bytes_max // 4, samples_min

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size(self) -> int:
        """Bytes of all entries."""
        return self._entries.weight

    def knows(self, key: Key) -> bool:
        """Whether this was asked before."""
        return key in self._entries

    def find(self, key: Key) -> Entry | None:
        """What is kept of it."""
        entry = self._entries.get(key)
        return entry[0] if entry else None

    def keep(self, key: Key, entry: Entry | None) -> None:
        """Keep an entry in place of the one before; ``None`` keeps the key alone, and whatever is there already."""
        if entry is not None and entry.size > self._entry_bytes_max:
            entry = None  # one giant must not push out everything else
        if entry is not None:
            self._entries.put(key, (entry,), _size(key, entry))
        elif key not in self._entries:
            self._entries.put(key, (), _size(key, None))

    def clear(self) -> None:
        """Forget everything: another store's apps have the same numbers."""
        self._entries.clear()


def _size(key: Key, entry: Entry | None) -> int:
    return _ENTRY_BYTES + len(key.text) + (0 if entry is None else entry.size)
