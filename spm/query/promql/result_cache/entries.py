"""The cache of range queries' answers: from expression, step, phase and lookback to the steps computed for them.

A cached answer has the steps of one expression on one grid whose samples were settled at the time, and the fingerprint
of those samples; a later query reuses the steps whose samples still have that fingerprint. The first query with a key
stores only the key, if its work was large enough; the second one stores its answer. When the byte bound is reached, the
least recently used answers are dropped. Enter by ``ResultCache``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from spm import limits
from spm.bounded import LruCache
from spm.fast_dataclass import dataclass
from spm.query.request.budget import CELL_BYTES, SERIES_BYTES
from spm.query.request.provenance import Provenance
from spm.query.series.label_table import Labels
from spm.query.view.fingerprint import SampleFingerprint

_ENTRY_BYTES, _HOUR_BYTES = 2_000, 500


@dataclass(frozen=True, slots=True)
class AnswerKey:
    """Identifies a query: queries with equal keys have equal values at common steps, as long as samples are equal."""

    app: int
    text: str
    step_ms: int
    phase_ms: int  # the time of every step modulo the step's width
    lookback_ms: int


@dataclass(frozen=True, slots=True)
class CachedAnswer:
    """Consecutive steps of an answer, with the fingerprint of the samples that they were computed from."""

    first_ms: int
    labels: Sequence[Labels]
    values: npt.NDArray[np.float64]  # [S, T]
    present: npt.NDArray[np.bool_]
    infos: tuple[str, ...]  # annotations of the expression
    provenance: Provenance
    fingerprint: SampleFingerprint

    @property
    def step_count(self) -> int:
        """The number of steps."""
        return int(self.values.shape[1])

    @property
    def size(self) -> int:
        """The estimated size in bytes."""
        hours = len(self.fingerprint.hour_states) * _HOUR_BYTES
        return _ENTRY_BYTES + self.values.size * CELL_BYTES + len(self.labels) * SERIES_BYTES + hours


class ResultCache:
    """A map from keys to cached answers, bounded in bytes. Thread-safe."""

    def __init__(
        self, bytes_max: int = limits.RESULTS_BYTES_MAX, samples_min: int = limits.RESULTS_SAMPLES_MIN
    ) -> None:
        # A key alone is stored as an empty tuple, an answer as a tuple of one.
        self._entries: LruCache[AnswerKey, tuple[CachedAnswer, ...]] = LruCache(bytes_max)
        self._entry_bytes_max, self.samples_min = bytes_max // 4, samples_min

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size(self) -> int:
        """The estimated bytes of all answers and keys."""
        return self._entries.weight

    def has_key(self, key: AnswerKey) -> bool:
        """Whether a query has stored this key, with or without an answer."""
        return key in self._entries

    def get(self, key: AnswerKey) -> CachedAnswer | None:
        """Return the cached answer of a key, if there is one."""
        answer = self._entries.get(key)
        return answer[0] if answer else None

    def put(self, key: AnswerKey, answer: CachedAnswer | None) -> None:
        """Replace the answer of a key; ``None`` stores the key alone, and leaves an answer that is there."""
        if answer is not None and answer.size > self._entry_bytes_max:
            answer = None  # one huge answer must not evict all others
        if answer is not None:
            self._entries.put(key, (answer,), _size(key, answer))
        elif key not in self._entries:
            self._entries.put(key, (), _size(key, None))

    def clear(self) -> None:
        """Drop everything: the apps of another store have the same numbers."""
        self._entries.clear()


def _size(key: AnswerKey, answer: CachedAnswer | None) -> int:
    return _ENTRY_BYTES + len(key.text) + (0 if answer is None else answer.size)
