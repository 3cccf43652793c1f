"""``/health/alerting``: whether alerting works, for programs that watch this one. No login; it names nobody."""

from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_safe

from alerts.health.stalls import stalls
from spm.clock import SystemClock

_clock = SystemClock()


@require_safe
def alerting_health(request: HttpRequest) -> JsonResponse:
    """Answer 200, or 503 with what stands still."""
    now_ms = _clock.now_ms()
    stalled = stalls(now_ms)
    parts = [
        {"what": each.what, "waiting": each.count, "late_s": (now_ms - each.since_ms) // 1_000} for each in stalled
    ]
    body = {"status": "stalled" if parts else "ok", "stalls": parts}
    return JsonResponse(body, status=503 if parts else 200, headers={"Cache-Control": "no-store"})
