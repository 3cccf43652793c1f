"""The explanations that `explain=1` asks for: the provenance of an answer, and the corrections of its hours.

Never computes an answer. Enter by `explanation_with_corrections`, or by `explanation_response` for formats other than
JSON.
"""

from typing import Any

from django.http import HttpResponse

from frontend.prometheus.endpoint import Call, json_response
from rollups.models import Correction
from spm.clock import moment
from spm.limits import EXPLAINED_HOUR_SHARDS_MAX, HOUR_MS
from spm.query.explain import explanation, span_of
from spm.query.formats import prometheus
from spm.query.reader import AppStorage
from spm.query.request.provenance import Provenance


def explanation_with_corrections(
    storage: AppStorage, app_id: int, provenance: Provenance, now_ms: int
) -> dict[str, Any]:
    """Return the explanation of an answer, with the corrections of the hours that it reads."""
    first, end = (moment(hour * HOUR_MS) for hour in span_of(provenance))
    corrections = Correction.objects.filter(app=app_id, hour__gte=first, hour__lt=end)[:EXPLAINED_HOUR_SHARDS_MAX]
    return {**explanation(storage, provenance, now_ms), "corrections": [_correction(each) for each in corrections]}


def explanation_response(call: Call, storage: AppStorage, provenance: Provenance) -> HttpResponse:
    """Return a response with the explanation alone, for formats that cannot have it beside the samples."""
    explanation_json = explanation_with_corrections(storage, call.caller.app_id, provenance, call.now_ms)
    return json_response(
        prometheus.success(None, warnings=provenance.warnings(), infos=provenance.infos(), explain=explanation_json)
    )


def _correction(each: Correction) -> dict[str, Any]:
    return {
        "hour": f"{each.hour:%Y-%m-%dT%H:%MZ}",
        "run": each.run,
        "cause": each.cause,
        "samplesThatCameLate": each.samples,
        "sources": each.sources,
        "at": f"{each.at:%Y-%m-%dT%H:%M:%SZ}",
    }
