"""Serves ``GET /metrics``: the metrics of this web server and of the whole site in Prometheus' text format.

Staff who are logged in may read it, and scrapers with a token of the product's own app and the scope ``read``. Tokens
of other apps get 403, because these numbers cover all apps.
"""

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from frontend import site_metrics
from spm import telemetry
from spm.accounts import internal_app, tokens


@require_GET
def metrics(request: HttpRequest) -> HttpResponse:
    status = _refusal_status(request)
    if status:
        headers = {"WWW-Authenticate": 'Bearer realm="spm"'} if status == 401 else {}
        text = "This needs a staff login, or a token of the app “This system” with the scope read.\n"
        return HttpResponse(text, status=status, content_type="text/plain; charset=utf-8", headers=headers)
    body = telemetry.exposition(telemetry.gauges_text(site_metrics.recent_figures(), site_metrics.HELPS))
    return HttpResponse(body, content_type=telemetry.CONTENT_TYPE, headers={"Cache-Control": "no-store"})


def _refusal_status(request: HttpRequest) -> int:
    """Return the status of a refusal, or 0 if the request may see the metrics."""
    secret = tokens.from_request(request)
    if secret is None:
        return 0 if request.user.is_active and request.user.is_staff else 403 if request.user.is_authenticated else 401
    principal = tokens.authenticate(secret, "read")
    if principal is None:
        return 401
    return 0 if principal.app_id == internal_app.app_number() else 403
