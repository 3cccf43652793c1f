"""Collects the exemplars of one message, and counts by their reasons those that cannot be kept.

An exemplar never rejects anything: the samples beside it are accepted whatever it holds. Enter by
``ExemplarCollector``.
"""

from collections import Counter

from ingest.exemplars.limits import EXEMPLAR_LABEL_CHARS_MAX, EXEMPLARS_MESSAGE_MAX
from ingest.protocols.common import naming
from ingest.protocols.common.series_cache import LabelPairs
from ingest.protocols.common.times import before_1970, too_far_ahead
from spm.limits import FUTURE_MS
from spm.wire import Exemplar, Rejection

NO_TIME = "they have no time"
UNREADABLE = "they cannot be read"
TOO_LONG = f"their labels are longer than {EXEMPLAR_LABEL_CHARS_MAX} characters"
TOO_MANY = f"one message has more than {EXEMPLARS_MESSAGE_MAX:,}"


class ExemplarCollector:
    """The exemplars of one message."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        self._refused: Counter[str] = Counter()
        self.exemplars: list[Exemplar] = []

    @property
    def room(self) -> int:
        """How many more the message may have; those that cannot be kept for another reason count, too."""
        return EXEMPLARS_MESSAGE_MAX - len(self.exemplars) - (self._refused.total() - self._refused[TOO_MANY])

    def add(self, series: bytes, ts: int, value: float, labels: LabelPairs) -> None:
        """Keep the exemplar of a series (its canonical form), or count it with the reason why not."""
        labels = [label for label in labels if label[1]]
        fault = TOO_MANY if self.room <= 0 else self._time_fault(ts) or naming.labels_fault(labels)
        texts = [] if fault else [(name.decode(), text.decode()) for name, text in labels]
        if not fault and sum(len(name) + len(text) for name, text in texts) > EXEMPLAR_LABEL_CHARS_MAX:
            fault = TOO_LONG
        if fault:
            self.refuse(fault)
        else:
            self.exemplars.append(Exemplar(series, ts, value, tuple(sorted(texts))))

    def refuse(self, reason: str, count: int = 1) -> None:
        """Count exemplars that are not kept."""
        if count > 0:
            self._refused[reason] += count

    def rejections(self) -> tuple[Rejection, ...]:
        """Return what people are told: one entry for each reason. None of them counts as a rejected sample."""
        return tuple(
            Rejection(0, f"exemplars left out ({count:,}), the samples beside them kept: {reason}", "")
            for reason, count in self._refused.items()
        )

    def _time_fault(self, ts: int) -> str | None:
        if ts == 0:
            return NO_TIME
        if ts < 0:
            return before_1970(ts, self._now_ms)
        return too_far_ahead(ts, self._now_ms) if ts > self._now_ms + FUTURE_MS else None
