"""The whole of `explain=1`: what the store says about an answer, and the hours of it that runs have built again."""

from datetime import UTC, datetime
from typing import Any

from rollups.models import Correction
from spm.limits import EXPLAINED_UNITS_MAX, HOUR_MS
from spm.query.explain import explanation, span_of
from spm.query.promql.engine import Result
from spm.query.storage import AppStorage


def explained(storage: AppStorage, app_id: int, found: Result, now_ms: int) -> dict[str, Any]:
    """What an answer rests on."""
    first, end = (datetime.fromtimestamp(slot * HOUR_MS / 1000, UTC) for slot in span_of(found.basis))
    corrected = Correction.objects.filter(app=app_id, hour__gte=first, hour__lt=end)[:EXPLAINED_UNITS_MAX]
    return {**explanation(storage, found.basis, now_ms), "corrections": [_correction(each) for each in corrected]}


def _correction(each: Correction) -> dict[str, Any]:
    return {
        "hour": f"{each.hour:%Y-%m-%dT%H:%MZ}",
        "run": each.run,
        "cause": each.cause,
        "samplesThatCameLate": each.samples,
        "sources": each.sources,
        "at": f"{each.at:%Y-%m-%dT%H:%M:%SZ}",
    }
