"""Selects exemplars for a query: those of the series of its selectors, between two times, without retracted ones.

Enter by ``select``. An answer has at most ``EXEMPLARS_SHOWN_MAX``, the newest.
"""

import struct
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from django.db.models import Q, QuerySet

from ingest.exemplars import limits
from ingest.exemplars.rows import Rows, rows_of, stored_name
from ingest.models import StoredExemplar
from spm.arrays import BOOL
from spm.fast_dataclass import dataclass
from spm.store.matchers import METRIC_NAME, Matcher
from spm.store.versions.retractions import Retraction

Matchers = Sequence[Matcher]
_BUCKET = "_bucket"


@dataclass(frozen=True, slots=True)
class SeriesExemplars:
    """The exemplars of one series, (time, value, labels), ascending by time."""

    labels: dict[str, str]
    exemplars: list[tuple[int, float, dict[str, str]]]


@dataclass(frozen=True, slots=True)
class ExemplarQuery:
    """Which exemplars of an app are asked for: of series that satisfy any of the matcher sets, both times included."""

    app_id: int
    matcher_sets: Sequence[Matchers]
    start_ms: int
    end_ms: int
    retractions: Sequence[Retraction] = ()  # that are in force
    asof_ms: int | None = None  # only what was accepted by then


def select(query: ExemplarQuery, check_deadline: Callable[[], None]) -> tuple[list[SeriesExemplars], bool]:
    """Return the exemplars by series, sorted by their labels, and whether there are more than an answer may have."""
    by_series: dict[bytes, SeriesExemplars] = {}
    matcher_sets = [variant for matchers in query.matcher_sets for variant in _variants(matchers)]
    candidates, count = _candidates(query, matcher_sets), 0
    rest = candidates
    while count <= limits.EXEMPLARS_SHOWN_MAX:
        check_deadline()
        rows = rows_of(rest[: limits.EXEMPLARS_READ_AT_ONCE])
        if not len(rows):
            break
        chosen = np.flatnonzero(_visible(rows, matcher_sets, query.retractions))
        for row in chosen[: limits.EXEMPLARS_SHOWN_MAX - count].tolist():
            _add(by_series, rows, row)
        count += len(chosen)
        last_ms, last_id = int(rows.ts[-1]), int(rows.ids[-1])
        rest = candidates.filter(Q(at_ms__lt=last_ms) | Q(at_ms=last_ms, pk__lt=last_id))
    for each in by_series.values():
        each.exemplars.reverse()
    return sorted(by_series.values(), key=lambda one: sorted(one.labels.items())), count > limits.EXEMPLARS_SHOWN_MAX


def _variants(matchers: Matchers) -> list[Matchers]:
    """Return the matchers, and of a classic histogram's buckets also those of the native one that may have come.

    Native histograms are stored as buckets; their exemplars keep the series under which they were sent.
    """
    variants: list[Matchers] = [matchers]
    for name in _names(matchers):
        if name.endswith(_BUCKET):
            others = (each for each in matchers if each.name not in (METRIC_NAME, "le"))
            variants.append((Matcher(METRIC_NAME, "=", name.removesuffix(_BUCKET)), Matcher("le", "=", ""), *others))
    return variants


def _names(matchers: Matchers) -> list[str]:
    return [each.value for each in matchers if each.name == METRIC_NAME and each.op == "="]


def _candidates(query: ExemplarQuery, matcher_sets: Sequence[Matchers]) -> "QuerySet[StoredExemplar]":
    """Return those in the range of times, newest first, with the names that all selectors ask for."""
    rows = StoredExemplar.objects.filter(app_id=query.app_id, at_ms__gte=query.start_ms, at_ms__lte=query.end_ms)
    names = [_names(matchers) for matchers in matcher_sets]
    if all(names):
        rows = rows.filter(metric__in=sorted({stored_name(name) for one in names for name in one}))
    if query.asof_ms is not None:
        rows = rows.filter(stamp_ms__lte=query.asof_ms)
    return rows.order_by("-at_ms", "-pk")


def _visible(rows: Rows, matcher_sets: Sequence[Matchers], retractions: Sequence[Retraction]) -> BOOL:
    matching: BOOL = np.logical_or.reduce([rows.matching(matchers) for matchers in matcher_sets])
    visible: BOOL = matching & ~rows.hidden_by(retractions)
    return visible


def _add(by_series: dict[bytes, SeriesExemplars], rows: Rows, row: int) -> None:
    number = int(rows.series[row])
    form = rows.forms[number]
    if form not in by_series:
        by_series[form] = SeriesExemplars(rows.labels_of_series[number], [])
    [value] = struct.unpack("<d", struct.pack("<q", int(rows.bits[row])))
    labels = dict(msgspec.json.decode(rows.labels[row], type=list[tuple[str, str]]))
    by_series[form].exemplars.append((int(rows.ts[row]), value, labels))
