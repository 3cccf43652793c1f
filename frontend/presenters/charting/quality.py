"""What a chart's numbers rest on, as ranges to draw: how far they are complete, what came late, what is retracted.

A ``Background`` is read once for all charts of a page. Each chart takes from it what concerns its own series. Enter by
``read_background``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rollups.models import Correction, CorrectionCause
from spm.clock import moment
from spm.limits import HOUR_MS
from spm.query.reader import AppStorage
from spm.query.request.provenance import HOURS, RAW, Provenance
from spm.query.view.view import View
from spm.store.ledger import watermarks
from spm.store.versions.retractions import Retraction

_LATE_MAX = 500  # hours with late samples that a chart marks
_RETRACTIONS_MAX = 100
_WORDS = {RAW: "raw", HOURS: "1 h"}


@dataclass(frozen=True, slots=True)
class Background:
    """What holds for all charts of a range: times are ms, ``complete_ms`` the time up to which all is visible."""

    start_ms: int
    end_ms: int
    complete_ms: int
    retractions: Sequence[Retraction]
    late: Sequence[dict[str, Any]]

    def quality(self, provenance: Provenance) -> dict[str, Any]:
        """Return what concerns an answer with this provenance, ready for JSON."""
        numbers = provenance.retractions | provenance.possible_retractions
        retractions = [self._range_of(each) for each in self.retractions if each.number in numbers]
        return {
            "complete_to": self.complete_ms,
            "resolutions": self._resolutions(provenance),
            "retractions": retractions[:_RETRACTIONS_MAX],
            "late": self.late,
        }

    def _range_of(self, retraction: Retraction) -> dict[str, Any]:
        return {
            "number": retraction.number,
            "made": retraction.start_ms,
            "start": max(retraction.data_from_ms, self.start_ms),
            "end": min(retraction.data_to_ms, self.end_ms),
            "by": retraction.author,
            "reason": retraction.reason,
        }

    def _resolutions(self, provenance: Provenance) -> list[dict[str, Any]]:
        ranges = sorted((first, end, name) for name, (first, end) in provenance.ranges)
        return [
            {"name": _WORDS.get(name, "1 d"), "start": first * HOUR_MS, "end": end * HOUR_MS}
            for first, end, name in ranges
            if end * HOUR_MS > self.start_ms and first * HOUR_MS < self.end_ms
        ]


def read_background(storage: AppStorage, start_ms: int, end_ms: int, now_ms: int, asof_ms: int | None) -> Background:
    """Read it for a range of an app's data, as it is now or was by ``asof_ms``."""
    answer_ms = now_ms if asof_ms is None else asof_ms

    def read(view: View) -> tuple[int, list[Retraction]]:
        lag_ms = watermarks.lag_ms(watermarks.read(view.reader, view.app), now_ms)
        return max(lag_ms - (now_ms - answer_ms), 0), list(view.retractions.values())

    lag_ms, retractions = storage.with_view(start_ms, end_ms, read)
    return Background(
        start_ms,
        end_ms,
        answer_ms - lag_ms,
        sorted(retractions, key=lambda each: -each.number),
        _late(storage.app, start_ms, end_ms, answer_ms),
    )


def _late(app_id: int, start_ms: int, end_ms: int, answer_ms: int) -> list[dict[str, Any]]:
    """List the hours of the range that got samples after they were rolled up."""
    corrections = Correction.objects.filter(
        app=app_id,
        cause=CorrectionCause.LATE,
        hour__gt=moment(max(start_ms - HOUR_MS, 0)),
        hour__lt=moment(end_ms),
        at__lte=moment(answer_ms),
    )[:_LATE_MAX]
    return [
        {
            "start": round(each.hour.timestamp() * 1000),
            "end": round(each.hour.timestamp() * 1000) + HOUR_MS,
            "samples": each.samples,
            "at": round(each.at.timestamp() * 1000),
        }
        for each in corrections
    ]
