"""The whole of `explain=1`: what the store says about an answer, and the hours of it that runs have built again."""

from typing import Any

from django.http import HttpResponse

from frontend.prometheus.endpoint import Call, json_answer
from rollups.models import Correction
from spm.clock import moment
from spm.limits import EXPLAINED_UNITS_MAX, HOUR_MS
from spm.query.explain import explanation, span_of
from spm.query.formats import prometheus
from spm.query.reader import AppStorage
from spm.query.request.provenance import Basis


def explained(storage: AppStorage, app_id: int, basis: Basis, now_ms: int) -> dict[str, Any]:
    """What an answer rests on."""
    first, end = (moment(hour * HOUR_MS) for hour in span_of(basis))
    corrected = Correction.objects.filter(app=app_id, hour__gte=first, hour__lt=end)[:EXPLAINED_UNITS_MAX]
    return {**explanation(storage, basis, now_ms), "corrections": [_correction(each) for each in corrected]}


def explained_alone(call: Call, storage: AppStorage, basis: Basis) -> HttpResponse:
    """The same instead of samples, for answers that have no room beside them."""
    told = explained(storage, call.caller.app_id, basis, call.now_ms)
    return json_answer(prometheus.success(None, warnings=basis.warnings(), infos=basis.infos(), explain=told))


def _correction(each: Correction) -> dict[str, Any]:
    return {
        "hour": f"{each.hour:%Y-%m-%dT%H:%MZ}",
        "run": each.run,
        "cause": each.cause,
        "samplesThatCameLate": each.samples,
        "sources": each.sources,
        "at": f"{each.at:%Y-%m-%dT%H:%M:%SZ}",
    }
