"""Exemplars of one app as columns, with what matchers and retractions say of each.

Enter by ``rows_of``. Never decides which app: its caller's query set does.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from django.db.models import QuerySet

from ingest.models import StoredExemplar
from spm.arrays import BOOL, I32, I64
from spm.fast_dataclass import dataclass
from spm.store.matchers import METRIC_NAME, Matcher, mask
from spm.store.versions.retractions import Retraction
from spm.wire import parse_canonical

_COLUMNS = ("id", "at_ms", "bits", "stamp_ms", "series", "labels", "source")


@dataclass(frozen=True, slots=True)
class Rows:
    """Some exemplars, in the order of their query. ``forms`` has each series once; ``series`` is a place in it."""

    ids: I64
    ts: I64
    bits: I64
    stamps: I64
    forms: Sequence[bytes]
    labels_of_series: Sequence[dict[str, str]]
    series: I32
    labels: Sequence[str]
    sources: Sequence[str]

    def __len__(self) -> int:
        return len(self.ids)

    def matching(self, matchers: Iterable[Matcher]) -> BOOL:
        """bool[N]: those whose series satisfies all matchers."""
        masks = [
            mask([labels.get(matcher.name, "") for labels in self.labels_of_series], matcher) for matcher in matchers
        ]
        if not masks or not len(self):
            return np.ones(len(self), np.bool_)
        matches: BOOL = np.logical_and.reduce(masks)[self.series]
        return matches

    def hidden_by(self, retractions: Iterable[Retraction]) -> BOOL:
        """bool[N]: those that a retraction hides, by the rules for samples."""
        hidden: BOOL = np.zeros(len(self), np.bool_)
        for each in retractions:
            rows = (self.stamps >= each.write_from_ms) & (self.stamps <= each.write_to_ms)
            rows &= (self.ts > each.data_from_ms) & (self.ts <= each.data_to_ms)
            if each.source:
                rows &= np.array([source == each.source for source in self.sources], np.bool_)
            if each.matchers and rows.any():
                rows &= self.matching(each.matchers)
            hidden |= rows
        return hidden


def stored_name(metric: str) -> str:
    """Return a metric's name as its column has it: PostgreSQL takes no NUL in text."""
    return metric.replace("\0", "\ufffd")


def rows_of(query: "QuerySet[StoredExemplar]") -> Rows:
    """Read the exemplars of a query set."""
    rows = list(query.values_list(*_COLUMNS))
    ids, ts, bits, stamps, series, labels, sources = zip(*rows, strict=True) if rows else ((),) * len(_COLUMNS)
    places: dict[bytes, int] = {}
    numbers = [places.setdefault(bytes(form), len(places)) for form in series]
    named = [parse_canonical(form) for form in places]
    return Rows(
        ids=np.array(ids, np.int64),
        ts=np.array(ts, np.int64),
        bits=np.array(bits, np.int64),
        stamps=np.array(stamps, np.int64),
        forms=list(places),
        labels_of_series=[{METRIC_NAME: metric, **own} for metric, own in named],
        series=np.array(numbers, np.int32),
        labels=labels,
        sources=sources,
    )
